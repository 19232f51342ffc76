#include <cstdint>
#include <tuple>
#include <vector>

#include "tests/kernels/kernel_test.h"

namespace telegrad::kernels::testing {
namespace {

using ::testing::ElementsAre;

class CastTest : public KernelTest {
 protected:
  // Encodes without error feedback.
  std::vector<uint8_t> Cast(const CastFormatKernels& format,
                            const std::vector<float>& grad,
                            NonFinite nonfinite = NonFinite::kPropagate) {
    Array<float> g(table(), grad);
    Array<uint8_t> codes(table(), std::vector<uint8_t>(2 * grad.size(), 0x77));
    Array<EncodeStats> stats(table(), {EncodeStats{}});
    format.encode(g.get(), nullptr, grad.size(), nonfinite, codes.get(),
                  stats.get(), Stream{});
    Wait(table());
    stats_ = stats.values()[0];
    return codes.values();
  }
  std::vector<float> Decode(const CastFormatKernels& format,
                            const std::vector<uint8_t>& codes) {
    Array<uint8_t> c(table(), codes);
    Array<float> out(table(), std::vector<float>(codes.size() / 2, 99.0f));
    format.decode(c.get(), codes.size() / 2, out.get(), Stream{});
    Wait(table());
    return out.values();
  }

  EncodeStats stats_;
};

std::vector<uint8_t> CodesFrom(uint32_t first, uint32_t last) {
  std::vector<uint8_t> codes;
  for (uint32_t code = first; code <= last; ++code) {
    codes.push_back(static_cast<uint8_t>(code));
    codes.push_back(static_cast<uint8_t>(code >> 8));
  }
  return codes;
}
uint32_t CodeAt(const std::vector<uint8_t>& codes, size_t i) {
  return codes[2 * i] | static_cast<uint32_t>(codes[2 * i + 1]) << 8;
}

// The value of a finite half, from the format's definition.
float HalfByDefinition(uint32_t code) {
  const int exponent = static_cast<int>(code >> 10 & 31);
  const auto mantissa = static_cast<float>(code & 1023);
  return exponent == 0 ? std::ldexp(mantissa, -24)
                       : std::ldexp(1024 + mantissa, exponent - 25);
}

TEST_P(CastTest, EveryHalfDecodesByItsDefinition) {
  const auto values = Decode(table().cast.fp16, CodesFrom(0, 0xFFFF));
  for (uint32_t code = 0; code < 0x7C00; ++code) {
    ASSERT_EQ(values[code], HalfByDefinition(code)) << code;
    ASSERT_EQ(values[code | 0x8000], -HalfByDefinition(code)) << code;
    ASSERT_TRUE(std::signbit(values[code | 0x8000])) << code;
  }
  EXPECT_EQ(values[0x7C00], INFINITY);
  EXPECT_EQ(values[0xFC00], -INFINITY);
  for (uint32_t code = 0x7C01; code < 0x8000; ++code) {
    ASSERT_TRUE(std::isnan(values[code])) << code;
    ASSERT_TRUE(std::isnan(values[code | 0x8000])) << code;
  }
}

TEST_P(CastTest, EveryBfloat16IsTheUpperHalfOfAFloat) {
  const auto values = Decode(table().cast.bf16, CodesFrom(0, 0xFFFF));
  for (uint32_t code = 0; code < 0x10000; ++code) {
    ASSERT_TRUE(SameBits(values[code], std::bit_cast<float>(code << 16)));
  }
}

// Between each two neighbours: what is nearer to one becomes that one, and the
// middle the even one. As casts are monotone, this fixes all of them.
TEST_P(CastTest, RoundsToTheNearestAndTiesToEven) {
  const CastKernels& cast = table().cast;
  for (const auto& [format, largest] :
       {std::pair{cast.fp16, 0x7BFFu}, std::pair{cast.bf16, 0x7F7Fu}}) {
    const auto exact = Decode(format, CodesFrom(0, largest));
    std::vector<float> grad;
    for (uint32_t code = 0; code < largest; ++code) {
      const float middle = exact[code] + (exact[code + 1] - exact[code]) / 2;
      for (const float x : {exact[code], std::nextafter(middle, 0.0f), middle,
                            std::nextafter(middle, INFINITY)}) {
        grad.push_back(x);
        grad.push_back(-x);
      }
    }
    const auto codes = Cast(format, grad);
    for (uint32_t code = 0; code < largest; ++code) {
      const uint32_t even = code % 2 == 0 ? code : code + 1;
      const uint32_t want[] = {code, code, even, code + 1};
      for (size_t k = 0; k < 4; ++k) {
        ASSERT_EQ(CodeAt(codes, 8 * code + 2 * k), want[k]) << code << " " << k;
        ASSERT_EQ(CodeAt(codes, 8 * code + 2 * k + 1), want[k] | 0x8000)
            << code << " " << k;
      }
    }
  }
}

TEST_P(CastTest, SaturatesWhatIsFinite) {
  EXPECT_THAT(
      Cast(table().cast.fp16, {65504, 65519, 65520, -1e30f, 3.4028235e38f}),
      ElementsAre(0xFF, 0x7B, 0xFF, 0x7B, 0xFF, 0x7B, 0xFF, 0xFB, 0xFF, 0x7B));
  EXPECT_THAT(Cast(table().cast.bf16, {3.4028235e38f, -3.4028235e38f}),
              ElementsAre(0x7F, 0x7F, 0x7F, 0xFF));
}

TEST_P(CastTest, PropagatesWhatIsNotFinite) {
  const std::vector<float> grad = {NAN, INFINITY, -INFINITY, 1};
  EXPECT_THAT(Cast(table().cast.fp16, grad),
              ElementsAre(0, 0x7E, 0, 0x7C, 0, 0xFC, 0, 0x3C));
  EXPECT_THAT(Cast(table().cast.bf16, grad),
              ElementsAre(0xC0, 0x7F, 0x80, 0x7F, 0x80, 0xFF, 0x80, 0x3F));
  EXPECT_EQ(stats_.num_nonfinite, 0u);
  EXPECT_EQ(stats_.num_nonzero, 4u);
}

// Inf + -Inf is a NaN with a sign on x86 and one without elsewhere.
TEST_P(CastTest, EveryNanIsTheSame) {
  const float made = std::bit_cast<float>(0xFFC00000u);
  const float payload = std::bit_cast<float>(0xFF812345u);
  EXPECT_THAT(Cast(table().cast.fp16, {NAN, -NAN, made, payload}),
              ElementsAre(0, 0x7E, 0, 0x7E, 0, 0x7E, 0, 0x7E));
  EXPECT_THAT(Cast(table().cast.bf16, {NAN, -NAN, made, payload}),
              ElementsAre(0xC0, 0x7F, 0xC0, 0x7F, 0xC0, 0x7F, 0xC0, 0x7F));
  // Whole vectors, and a tail.
  constexpr size_t kElems = 131;
  Array<float> grad(table(), std::vector<float>(kElems, INFINITY));
  Array<float> residual(table(), std::vector<float>(kElems, -INFINITY));
  Array<uint8_t> codes(table(), std::vector<uint8_t>(2 * kElems));
  Array<EncodeStats> stats(table(), {EncodeStats{}});
  table().cast.fp16.encode(grad.get(), residual.get(), kElems,
                           NonFinite::kPropagate, codes.get(), stats.get(),
                           Stream{});
  Wait(table());
  for (size_t i = 0; i < kElems; ++i) {
    ASSERT_EQ(CodeAt(codes.values(), i), 0x7E00u) << i;
  }
}

TEST_P(CastTest, ZeroModeCountsWhatIsNotFinite) {
  EXPECT_THAT(
      Cast(table().cast.fp16, {-0.0f, NAN, -INFINITY, 1}, NonFinite::kZero),
      ElementsAre(0, 0x80, 0, 0, 0, 0, 0, 0x3C));
  EXPECT_EQ(stats_.num_nonfinite, 2u);
  EXPECT_EQ(stats_.first_nonfinite, 1u);
  EXPECT_EQ(stats_.num_nonzero, 1u);
}

// 1 + 2^-12 is 1 in a half and leaves 2^-12; the second time 2^-11 is left,
// which is half an ulp and goes to the even 1; the third time 3*2^-12 is more.
TEST_P(CastTest, ErrorFeedbackByHand) {
  Array<float> grad(table(), {1 + 0x1p-12f});
  Array<float> residual(table(), {0.0f});
  Array<uint8_t> codes(table(), {0, 0});
  Array<EncodeStats> stats(table(), {EncodeStats{}});
  const auto step = [&] {
    table().cast.fp16.encode(grad.get(), residual.get(), 1, NonFinite::kZero,
                             codes.get(), stats.get(), Stream{});
    Wait(table());
    return std::tuple(codes.values()[0], codes.values()[1],
                      residual.values()[0]);
  };
  EXPECT_EQ(step(), std::tuple(0x00, 0x3C, 0x1p-12f));
  EXPECT_EQ(step(), std::tuple(0x00, 0x3C, 0x1p-11f));
  EXPECT_EQ(step(), std::tuple(0x01, 0x3C, -0x1p-12f));
}

struct Encoded {
  std::vector<uint8_t> codes;
  std::vector<float> residual;
  EncodeStats stats;
};

Encoded Encode(const KernelTable& table, const CastFormatKernels& format,
               const std::vector<float>& grad,
               const std::vector<float>& residual, bool has_residual,
               NonFinite nonfinite, size_t skew) {
  Array<float> g(table, grad, 8 * skew);
  Array<float> r(table, residual, 4 * skew);
  Array<uint8_t> codes(table, std::vector<uint8_t>(2 * grad.size(), 0x77),
                       skew);
  Array<EncodeStats> stats(table, {EncodeStats{.num_nonzero = 7,
                                               .num_nonfinite = 3,
                                               .first_nonfinite = 200}});
  format.encode(g.get(), has_residual ? r.get() : nullptr, grad.size(),
                nonfinite, codes.get(), stats.get(), Stream{});
  Wait(table);
  return {codes.values(), r.values(), stats.values()[0]};
}

TEST_P(CastTest, EncodesAsTheReference) {
  for (const auto format : {&CastKernels::fp16, &CastKernels::bf16}) {
    for (const size_t n : SizesToTry(table())) {
      for (int mode = 0; mode < 8; ++mode) {
        SCOPED_TRACE(::testing::Message() << "n " << n << " mode " << mode);
        const bool specials = (mode & 1) != 0;
        const bool has_residual = (mode & 2) != 0;
        const auto nonfinite =
            (mode & 4) != 0 ? NonFinite::kZero : NonFinite::kPropagate;
        // Scales that reach subnormal and saturated halves.
        const float scale = n % 3 == 0 ? 1e-6f : n % 3 == 1 ? 1 : 4e4f;
        const auto grad = RandomFloats(n, scale, specials, n + 1);
        const auto residual = RandomFloats(n, scale, specials, n + 2);
        const KernelTable& reference = ReferenceKernels();
        const Encoded want = Encode(reference, reference.cast.*format, grad,
                                    residual, has_residual, nonfinite, 0);
        const Encoded got = Encode(table(), table().cast.*format, grad,
                                   residual, has_residual, nonfinite, n % 4);
        ASSERT_EQ(got.codes, want.codes);
        ExpectSameBits(got.residual, want.residual);
        ExpectSameStats(got.stats, want.stats);
      }
    }
  }
}

TEST_P(CastTest, DecodesAnyBytesAsTheReference) {
  for (const auto format : {&CastKernels::fp16, &CastKernels::bf16}) {
    for (const size_t n : SizesToTry(table())) {
      SCOPED_TRACE(::testing::Message() << "n " << n);
      const auto codes = RandomBytes(2 * n, n);
      const auto base = RandomFloats(n, 1.0f, true, n + 1);
      const auto run = [&](const KernelTable& kernels, size_t skew) {
        Array<uint8_t> c(kernels, codes, skew);
        Array<float> out(kernels, base, 4 * skew);
        Array<float> sum(kernels, base, 4 * skew);
        (kernels.cast.*format).decode(c.get(), n, out.get(), Stream{});
        (kernels.cast.*format).decode_add(c.get(), n, sum.get(), Stream{});
        Wait(kernels);
        return std::pair(out.values(), sum.values());
      };
      const auto want = run(ReferenceKernels(), 0);
      const auto got = run(table(), n % 4);
      ExpectSameBits(got.first, want.first);
      ExpectSameBits(got.second, want.second);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, CastTest, ::testing::ValuesIn(Tables()),
                         NameOf);

}  // namespace
}  // namespace telegrad::kernels::testing
