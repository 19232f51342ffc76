#include "kernels/block.h"

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/block_rules.h"
#include "tests/kernels/kernel_test.h"

// kernels/block.h: every table equals the reference, and the reference equals
// what papers and arithmetic say.
namespace telegrad::kernels::testing {
namespace {

class BlockTest : public KernelTest {};

const BlockFormat kFormats[] = {
    {.block = 1024, .bits = 8, .levels = 127},
    {.block = 64, .bits = 8, .levels = 100},
    {.block = 128, .bits = 4, .levels = 7},
    {.block = 192, .bits = 2, .levels = 1},
    {.block = size_t{1} << 20, .bits = 2, .levels = 1},
    {.block = size_t{1} << 20, .bits = 4, .levels = 5},
};
const BlockFormat kOddFormats[] = {
    {.block = 256, .bits = 2, .levels = 2, .odd = true},
    {.block = 1088, .bits = 3, .levels = 4, .odd = true},
};
const BlockFormat kNaturalFormats[] = {
    {.block = 512, .bits = 8, .levels = 24, .natural = true},
    {.block = 64, .bits = 4, .levels = 7, .natural = true},
    {.block = 128, .bits = 2, .levels = 1, .natural = true},
};

std::vector<BlockFormat> AllFormats() {
  std::vector<BlockFormat> all(std::begin(kFormats), std::end(kFormats));
  all.insert(all.end(), std::begin(kNaturalFormats), std::end(kNaturalFormats));
  return all;
}

constexpr EncodeStats kOldStats = {
    .num_nonzero = 7, .num_nonfinite = 3, .first_nonfinite = 200};

struct Encoded {
  std::vector<uint8_t> payload;
  std::vector<float> residual;
  EncodeStats stats;
};

void ExpectSame(const Encoded& got, const Encoded& want) {
  ASSERT_EQ(got.payload, want.payload);
  ExpectSameBits(got.residual, want.residual);
  ExpectSameStats(got.stats, want.stats);
}

// GPUs want payloads aligned to their floats.
size_t PayloadSkew(const KernelTable& table, size_t skew) {
  return table.device == DeviceKind::kCuda ? 4 * skew : 3 * skew;
}

// Where a payload's codes begin at a border of 64 bytes, as they must to be
// written past the caches.
size_t SkewOfCodesAtVectors(size_t n, const BlockFormat& format) {
  return (64 - ScaleBytes(n, format) % 64) % 64;
}

Encoded Quantize(const KernelTable& table, const std::vector<float>& grad,
                 const std::vector<float>& residual, const BlockFormat& format,
                 NonFinite nonfinite, size_t skew) {
  const size_t n = grad.size();
  Array<float> g(table, grad, 8 * skew);
  Array<float> r(table, residual, 4 * skew);
  Array<uint8_t> payload(
      table, std::vector<uint8_t>(BlockPayloadBytes(n, format), 0x77),
      skew == 0 ? SkewOfCodesAtVectors(n, format) : PayloadSkew(table, skew));
  Array<EncodeStats> stats(table, {kOldStats});
  table.block.quantize(g.get(), r.get(), n, format, nonfinite, payload.get(),
                       stats.get(), Stream{});
  Wait(table);
  return {payload.values(), r.values(), stats.values()[0]};
}

Encoded SharedQuantize(const KernelTable& table, const std::vector<float>& grad,
                       const std::vector<float>& residual, uint32_t bits,
                       NonFinite nonfinite, size_t skew) {
  const size_t n = grad.size();
  Array<float> g(table, grad, 8 * skew);
  Array<float> r(table, residual, 4 * skew);
  Array<uint8_t> codes(table, std::vector<uint8_t>(CodeBytes(n, bits), 0x77),
                       PayloadSkew(table, skew));
  Array<EncodeStats> stats(table, {kOldStats});
  table.block.shared_quantize(g.get(), r.get(), n, bits,
                              bits == 8 ? 0.01f : 0.125f, nonfinite,
                              codes.get(), stats.get(), Stream{});
  Wait(table);
  return {codes.values(), r.values(), stats.values()[0]};
}

Encoded Dither(const KernelTable& table, const std::vector<float>& grad,
               const BlockFormat& format, float limit, NonFinite nonfinite,
               size_t skew) {
  const size_t n = grad.size();
  Array<float> g(table, grad, 8 * skew);
  Array<uint8_t> payload(
      table, std::vector<uint8_t>(BlockPayloadBytes(n, format), 0x77),
      PayloadSkew(table, skew));
  Array<EncodeStats> stats(table, {kOldStats});
  table.block.dither(g.get(), n, format, {.most = limit},
                     {.key = 0x123456789ABCDEF0, .step = 5}, nonfinite,
                     payload.get(), stats.get(), Stream{});
  Wait(table);
  return {payload.values(), {}, stats.values()[0]};
}

template <typename Body>
void ForEachInput(Body body) {
  for (const size_t n : SizesToTry()) {
    for (const bool specials : {false, true}) {
      const NonFinite nonfinite =
          n % 3 == 0 ? NonFinite::kPropagate : NonFinite::kZero;
      SCOPED_TRACE(::testing::Message() << "n " << n << " specials " << specials
                                        << " " << static_cast<int>(nonfinite));
      body(RandomFloats(n, 0.5f, specials, n + 1),
           RandomFloats(n, 0.3f, specials && n % 2 == 0, n + 2), nonfinite);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST_P(BlockTest, QuantizeEqualsReference) {
  std::vector<BlockFormat> formats(std::begin(kFormats), std::end(kFormats));
  formats.insert(formats.end(), std::begin(kOddFormats), std::end(kOddFormats));
  for (const BlockFormat& format : formats) {
    SCOPED_TRACE(::testing::Message()
                 << "block " << format.block << " bits " << format.bits);
    ForEachInput([&](const std::vector<float>& grad,
                     const std::vector<float>& residual, NonFinite nonfinite) {
      ExpectSame(
          Quantize(table(), grad, residual, format, nonfinite, grad.size() % 2),
          Quantize(ReferenceKernels(), grad, residual, format, nonfinite, 0));
    });
  }
}

TEST_P(BlockTest, SharedQuantizeEqualsReference) {
  for (const uint32_t bits : {2u, 3u, 4u, 8u}) {
    SCOPED_TRACE(bits);
    ForEachInput([&](const std::vector<float>& grad,
                     const std::vector<float>& residual, NonFinite nonfinite) {
      ExpectSame(SharedQuantize(table(), grad, residual, bits, nonfinite,
                                grad.size() % 2),
                 SharedQuantize(ReferenceKernels(), grad, residual, bits,
                                nonfinite, 0));
    });
  }
}

TEST_P(BlockTest, DitherEqualsReference) {
  for (const BlockFormat& format : AllFormats()) {
    SCOPED_TRACE(::testing::Message()
                 << "block " << format.block << " bits " << format.bits
                 << " natural " << format.natural);
    ForEachInput([&](const std::vector<float>& grad, const std::vector<float>&,
                     NonFinite nonfinite) {
      const float limit = grad.size() % 5 == 0 ? 0.6f : kMostMaximum;
      ExpectSame(
          Dither(table(), grad, format, limit, nonfinite, grad.size() % 2),
          Dither(ReferenceKernels(), grad, format, limit, nonfinite, 0));
    });
  }
}

// 2.5 times the root of 1/16.
TEST_P(BlockTest, DitherTakesItsLimitFromAMeanSquare) {
  const std::vector<float> values = RandomFloats(5000, 1, true, 3);
  const BlockFormat format = {.block = 5056, .bits = 2, .levels = 1};
  const auto run = [&](const DitherLimit& limit) {
    Array<float> grad(table(), values);
    Array<uint8_t> payload(table(), std::vector<uint8_t>(BlockPayloadBytes(
                                        values.size(), format)));
    Array<EncodeStats> stats(table(), {EncodeStats{}});
    table().block.dither(grad.get(), values.size(), format, limit, {.key = 1},
                         NonFinite::kZero, payload.get(), stats.get(),
                         Stream{});
    Wait(table());
    return payload.values();
  };
  const Array<double> mean_square(table(), {0.0625});
  EXPECT_EQ(run({.clip = 2.5, .mean_square = mean_square.get()}),
            run({.most = 0.625f}));
  EXPECT_EQ(run({.most = 0.5f, .clip = 2.5, .mean_square = mean_square.get()}),
            run({.most = 0.5f}));
  EXPECT_NE(run({.most = 0.625f}), run({}));
}

std::vector<float> Decode(const KernelTable& table,
                          const std::vector<uint8_t>& bytes, size_t n,
                          const BlockFormat& format, bool add, size_t skew) {
  Array<uint8_t> payload(table, bytes, PayloadSkew(table, skew));
  Array<float> out(table, RandomFloats(n, 1, false, 3), 4 * skew);
  (add ? table.block.decode_add : table.block.decode)(payload.get(), n, format,
                                                      out.get(), Stream{});
  Wait(table);
  return out.values();
}

TEST_P(BlockTest, DecodeEqualsReference) {
  std::vector<BlockFormat> formats = AllFormats();
  formats.insert(formats.end(), std::begin(kOddFormats), std::end(kOddFormats));
  for (const BlockFormat& format : formats) {
    for (const size_t n : SizesToTry()) {
      const std::vector<float> grad = RandomFloats(n, 0.5f, false, n);
      const Encoded encoded = format.odd
                                  ? Quantize(ReferenceKernels(), grad, grad,
                                             format, NonFinite::kZero, 0)
                                  : Dither(ReferenceKernels(), grad, format,
                                           kMostMaximum, NonFinite::kZero, 0);
      for (const bool add : {false, true}) {
        SCOPED_TRACE(::testing::Message()
                     << "n " << n << " bits " << format.bits << " add " << add);
        ExpectSameBits(
            Decode(table(), encoded.payload, n, format, add, n % 2),
            Decode(ReferenceKernels(), encoded.payload, n, format, add, 0));
      }
    }
  }
}

std::vector<float> SharedDecode(const KernelTable& table,
                                const std::vector<uint8_t>& bytes, size_t n,
                                uint32_t bits, uint32_t odd, bool add,
                                size_t skew) {
  Array<uint8_t> codes(table, bytes, PayloadSkew(table, skew));
  Array<float> out(table, RandomFloats(n, 1, false, 3), 4 * skew);
  (add ? table.block.shared_decode_add : table.block.shared_decode)(
      codes.get(), n, bits, odd, 0.3f, out.get(), Stream{});
  Wait(table);
  return out.values();
}

TEST_P(BlockTest, SharedDecodeEqualsReference) {
  for (const uint32_t bits : {2u, 3u, 4u, 5u, 6u, 7u, 8u, 16u, 32u}) {
    for (const size_t n : SizesToTry()) {
      const std::vector<uint8_t> bytes = RandomBytes(CodeBytes(n, bits), n);
      for (const bool add : {false, true}) {
        SCOPED_TRACE(::testing::Message()
                     << "n " << n << " bits " << bits << " add " << add);
        ExpectSameBits(SharedDecode(table(), bytes, n, bits,
                                    static_cast<uint32_t>(n % 5), add, n % 2),
                       SharedDecode(ReferenceKernels(), bytes, n, bits,
                                    static_cast<uint32_t>(n % 5), add, 0));
      }
    }
  }
}

struct Sums {
  std::vector<uint8_t> codes;
  std::vector<float> values;
};

Sums Sum(const KernelTable& table,
         const std::vector<std::vector<uint8_t>>& frames, size_t n,
         uint32_t bits, uint32_t sum_bits, size_t skew) {
  std::vector<std::unique_ptr<Array<uint8_t>>> arrays;
  std::vector<const uint8_t*> pointers;
  for (const std::vector<uint8_t>& frame : frames) {
    arrays.push_back(std::make_unique<Array<uint8_t>>(
        table, frame, PayloadSkew(table, skew)));
    pointers.push_back(arrays.back()->get());
  }
  Array<uint8_t> sum(table, std::vector<uint8_t>(CodeBytes(n, sum_bits), 0x77),
                     PayloadSkew(table, skew));
  Array<float> out(table, std::vector<float>(n, 7.0f), 4 * skew);
  const auto count = static_cast<uint32_t>(frames.size());
  table.block.sum_codes(pointers.data(), count, n, bits, sum_bits, sum.get(),
                        Stream{});
  table.block.shared_sum_decode(pointers.data(), count, n, bits, 0.3f,
                                out.get(), Stream{});
  Wait(table);
  return {sum.values(), out.values()};
}

TEST_P(BlockTest, SumsEqualReference) {
  struct Case {
    uint32_t bits;
    uint32_t num_frames;
    uint32_t sum_bits;
  };
  for (const Case& c :
       {Case{8, 1, 16}, Case{8, 3, 16}, Case{8, 300, 32}, Case{4, 5, 8},
        Case{4, 40, 16}, Case{2, 1, 2}, Case{2, 2, 3}, Case{2, 4, 4},
        Case{3, 3, 5}, Case{3, 8, 6}, Case{3, 16, 7}, Case{2, 100, 16}}) {
    for (const size_t n : {1, 2, 15, 63, 64, 65, 127, 257, 1003, 100003}) {
      if (n > 1003 && c.num_frames > 5) continue;
      std::vector<std::vector<uint8_t>> frames;
      for (uint32_t f = 0; f < c.num_frames; ++f) {
        frames.push_back(RandomBytes(CodeBytes(n, c.bits), 31 * n + f));
      }
      SCOPED_TRACE(::testing::Message() << n << ", W " << c.num_frames);
      const Sums got = Sum(table(), frames, n, c.bits, c.sum_bits, n % 2);
      const Sums want =
          Sum(ReferenceKernels(), frames, n, c.bits, c.sum_bits, 0);
      ASSERT_EQ(got.codes, want.codes);
      ExpectSameBits(got.values, want.values);
    }
  }
}

// By hand: m = 2, scale 2/7, inverse 3.5; -1.5 * 3.5 = -5.25 -> -5.
TEST_P(BlockTest, KnownAnswerOfInt4) {
  const Encoded encoded =
      Quantize(table(), {1.0f, -1.0f, 0.0f, 2.0f}, {1.0f, -0.5f, 0.0f, -0.5f},
               {.block = 64, .bits = 4, .levels = 7}, NonFinite::kZero, 0);
  const float scale = 2.0f / 7.0f;
  float sent;
  std::memcpy(&sent, encoded.payload.data(), sizeof(sent));
  EXPECT_EQ(sent, scale);
  // 7 and -5 (1011), 0 and 5.
  EXPECT_EQ(encoded.payload[4], 0xB7);
  EXPECT_EQ(encoded.payload[5], 0x50);
  ExpectSameBits(encoded.residual,
                 {2.0f - 7 * scale, -1.5f + 5 * scale, 0.0f, 1.5f - 5 * scale});
  EXPECT_EQ(encoded.stats.num_nonzero, kOldStats.num_nonzero + 3);
}

// By hand: the mean square is 4, and 0.498 * 2 to the nearest bf16 is 255/256.
TEST_P(BlockTest, KnownAnswerOfOddCodes) {
  const Encoded encoded = Quantize(
      table(), {2, -2, 0.5f, -2, 0}, {1, -1, 0.5f, 1, 0},
      {.block = 64, .bits = 2, .levels = 2, .odd = true}, NonFinite::kZero, 0);
  const float scale = 255.0f / 256;
  // The scale; 1, -2 (10), 0, -1 (11) and 0.
  EXPECT_EQ(encoded.payload, (std::vector<uint8_t>{0x7F, 0x3F, 0xC9, 0}));
  ExpectSameBits(encoded.residual, {3 - 3 * scale, -3 + 3 * scale, 1 - scale,
                                    -1 + scale, -scale});
  EXPECT_EQ(encoded.stats.num_nonzero, kOldStats.num_nonzero + 5);
}

TEST_P(BlockTest, ATieGoesToEvenAndTheRestIsClamped) {
  const Encoded encoded =
      SharedQuantize(table(), {0.0625f, 0.1875f, 5.0f, -5.0f}, {0, 0, 0, 0}, 4,
                     NonFinite::kZero, 0);
  // 0.5 -> 0, 1.5 -> 2, 40 -> 7, -40 -> -7 (1001).
  EXPECT_EQ(encoded.payload, (std::vector<uint8_t>{0x20, 0x97}));
  ExpectSameBits(encoded.residual, {0.0625f, -0.0625f, 4.125f, -4.125f});
}

TEST_P(BlockTest, BlocksOfTinyOrHugeValuesStayFinite) {
  for (const BlockFormat format : {BlockFormat{.block = 64}, kOddFormats[1]})
    for (const float value : {1e-42f, 0x1p-101f, 0x1p-100f, 3e38f, 0x1p100f}) {
      SCOPED_TRACE(value);
      const Encoded encoded =
          Quantize(table(), std::vector<float>(65, value),
                   std::vector<float>(65, 0), format, NonFinite::kZero, 0);
      for (const float v :
           Decode(table(), encoded.payload, 65, format, false, 0)) {
        EXPECT_TRUE(std::isfinite(v));
        EXPECT_LE(v, value);
      }
      for (const float r : encoded.residual) EXPECT_TRUE(std::isfinite(r));
    }
}

// Natural levels of a maximum of 8 with 4 levels are 1, 2, 4 and 8.
TEST_P(BlockTest, NaturalDitherKeepsPowersOfTwo) {
  const BlockFormat format = {
      .block = 64, .bits = 4, .levels = 4, .natural = true};
  const std::vector<float> grad = {8, -4, 2, -1, 0, 3, 0.5f};
  const Encoded encoded =
      Dither(table(), grad, format, kMostMaximum, NonFinite::kZero, 0);
  const auto decoded = Decode(table(), encoded.payload, 7, format, false, 0);
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(decoded[i], grad[i]) << i;
  EXPECT_TRUE(decoded[5] == 2 || decoded[5] == 4) << decoded[5];
  EXPECT_TRUE(decoded[6] == 0 || decoded[6] == 1) << decoded[6];
}

// Known answers of Random123 (kat_vectors, philox4x32 with 7 rounds).
TEST(Philox, KnownAnswers) {
  const PhiloxWords zero = PhiloxDraw({}, 0);
  EXPECT_EQ(zero.word[0], 0x5f6fb709u);
  EXPECT_EQ(zero.word[1], 0x0d893f64u);
  EXPECT_EQ(zero.word[2], 0x4f121f81u);
  EXPECT_EQ(zero.word[3], 0x4f730a48u);
}

TEST(Philox, ElementsDrawDifferentWords) {
  std::vector<uint32_t> draws;
  for (size_t i = 0; i < 1000; ++i) draws.push_back(DrawFor({}, i));
  std::sort(draws.begin(), draws.end());
  EXPECT_EQ(std::unique(draws.begin(), draws.end()), draws.end());
  EXPECT_NE(DrawFor({.key = 1}, 0), DrawFor({.key = 2}, 0));
  EXPECT_NE(DrawFor({.key = 1, .step = 1}, 0), DrawFor({.key = 1}, 0));
}

INSTANTIATE_TEST_SUITE_P(Tables, BlockTest, ::testing::ValuesIn(Tables()),
                         NameOf);

}  // namespace
}  // namespace telegrad::kernels::testing
