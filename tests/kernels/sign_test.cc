#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <vector>

#include "tests/kernels/kernel_test.h"

namespace telegrad::kernels::testing {
namespace {

using ::testing::ElementsAre;

constexpr NonFinite kModes[] = {NonFinite::kZero, NonFinite::kPropagate};

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

// Runs `encode` on arrays that lie `skew` off; stats start from `start`.
template <typename Encode>
Encoded Run(const KernelTable& table, const std::vector<float>& grad,
            const std::vector<float>& residual, size_t payload_bytes,
            size_t skew, const EncodeStats& start, Encode encode) {
  Array<float> g(table, grad, 8 * skew);
  Array<float> r(table, residual, 4 * skew);
  Array<uint8_t> payload(table, std::vector<uint8_t>(payload_bytes, 0x77),
                         skew);
  Array<EncodeStats> stats(table, {start});
  encode(g.get(), r.get(), payload.get(), stats.get());
  Wait(table);
  return {payload.values(), r.values(), stats.values()[0]};
}

constexpr EncodeStats kUsed = {
    .num_nonzero = 7, .num_nonfinite = 3, .first_nonfinite = 200};

Encoded OneBit(const KernelTable& table, const std::vector<float>& grad,
               const std::vector<float>& residual, float threshold,
               float magnitude, NonFinite nonfinite, size_t skew = 0,
               const EncodeStats& start = {}) {
  return Run(table, grad, residual, OneBitBytes(grad.size()), skew, start,
             [&](const float* g, float* r, uint8_t* payload, auto* stats) {
               table.sign.one_bit_encode(g, r, grad.size(), threshold,
                                         magnitude, nonfinite, payload, stats,
                                         Stream{});
             });
}

Encoded BlockSign(const KernelTable& table, const std::vector<float>& grad,
                  const std::vector<float>& residual, size_t block,
                  NonFinite nonfinite, size_t skew = 0,
                  const EncodeStats& start = {}) {
  const size_t n = grad.size();
  return Run(table, grad, residual, BlockSignBytes(n, block), skew, start,
             [&](const float* g, float* r, uint8_t* payload, auto* stats) {
               table.sign.block_encode(g, r, n, block, nonfinite, payload,
                                       stats, Stream{});
             });
}

class SignTest : public KernelTest {
 protected:
  // Known answer D: `grad`, then zeros.
  void ExpectTwoSteps(float threshold, const std::vector<uint8_t>& first,
                      const std::vector<float>& first_residual,
                      const std::vector<uint8_t>& second,
                      const std::vector<float>& second_residual) {
    const std::vector<float> grad = {2, -2, .5f, -.5f, 0, 1, -1.f, .25, 3, -3};
    const std::vector<float> zeros(10);
    Encoded got = OneBit(table(), grad, zeros, threshold, 1, NonFinite::kZero);
    EXPECT_EQ(got.payload, first);
    EXPECT_EQ(got.residual, first_residual);
    EXPECT_EQ(got.stats.num_nonzero, 10u);
    got = OneBit(table(), zeros, got.residual, threshold, 1, NonFinite::kZero);
    EXPECT_EQ(got.payload, second);
    EXPECT_EQ(got.residual, second_residual);
  }
};

// The last four bytes are the magnitude 1.
TEST_P(SignTest, OneBitAsMxnetsOfThreshold0) {
  ExpectTwoSteps(0, {0xa5, 0x80, 0, 0, 0, 0, 0x80, 0x3f},
                 {1, -1, -.5f, .5f, 1, 0, 0, -.75f, 2, -2},
                 {0x98, 0x80, 0, 0, 0, 0, 0x80, 0x3f},
                 {0, 0, .5f, -.5f, 0, 1, 1, .25f, 1, -1});
}

TEST_P(SignTest, OneBitAsMxnetsOfThresholdOneHalf) {
  ExpectTwoSteps(.5f, {0x84, 0x80, 0, 0, 0, 0, 0x80, 0x3f},
                 {1, -1, 1.5f, .5f, 1, 0, 0, 1.25f, 2, -2},
                 {0xa9, 0x80, 0, 0, 0, 0, 0x80, 0x3f},
                 {0, 0, .5f, 1.5f, 0, 1, 1, .25f, 1, -1});
}

TEST_P(SignTest, OneBitTakesWhatIsNotFiniteAsZero) {
  const Encoded got = OneBit(table(), {1, NAN, INFINITY, -1},
                             {0, .25f, -.25f, NAN}, 0, 1, NonFinite::kZero);
  EXPECT_EQ(got.payload[0], 0b1100'0000);
  EXPECT_THAT(got.residual, ElementsAre(0, -.75f, .75f, 1));
  EXPECT_EQ(got.stats.num_nonfinite, 3u);
  EXPECT_EQ(got.stats.first_nonfinite, 1u);
}

TEST_P(SignTest, OneBitEncodesAsTheReference) {
  for (const size_t n : SizesToTry(table())) {
    for (const bool specials : {false, true}) {
      for (const NonFinite nonfinite : kModes) {
        SCOPED_TRACE(::testing::Message() << "n " << n << " " << specials
                                          << static_cast<int>(nonfinite));
        const auto grad = RandomFloats(n, 0.5f, specials, n + 1);
        const auto residual = RandomFloats(n, 0.3f, specials, n + 2);
        const float threshold = n % 2 == 0 ? 0.0f : 0.5f;
        ExpectSame(OneBit(table(), grad, residual, threshold, 4, nonfinite,
                          n % 4, kUsed),
                   OneBit(ReferenceKernels(), grad, residual, threshold, 4,
                          nonfinite, 0, kUsed));
      }
    }
  }
}

TEST_P(SignTest, OneBitDecodesAsTheReference) {
  for (const size_t n : SizesToTry(table())) {
    SCOPED_TRACE(::testing::Message() << "n " << n);
    auto payload = RandomBytes(OneBitBytes(n), n);
    const float magnitude = 8;
    std::memcpy(payload.data() + SignBytes(n), &magnitude, 4);
    const auto base = RandomFloats(n, 1.0f, true, n + 1);
    const auto run = [&](const KernelTable& kernels, size_t skew) {
      Array<uint8_t> p(kernels, payload, skew);
      Array<float> out(kernels, base, 4 * skew);
      Array<float> sum(kernels, base, 4 * skew);
      kernels.sign.one_bit_decode(p.get(), n, out.get(), Stream{});
      kernels.sign.one_bit_decode_add(p.get(), n, sum.get(), Stream{});
      Wait(kernels);
      return std::pair(out.values(), sum.values());
    };
    const auto want = run(ReferenceKernels(), 0);
    const auto got = run(table(), n % 4);
    ExpectSameBits(got.first, want.first);
    ExpectSameBits(got.second, want.second);
  }
}

// Ones: 3, 2, 1, 0, in two planes.
TEST_P(SignTest, CountsOfThreeFramesByHand) {
  Array<uint8_t> a(table(), {0b1110'0000, 0, 0, 0});
  Array<uint8_t> b(table(), {0b1100'0000, 0, 0, 0});
  Array<uint8_t> c(table(), {0b1000'0000, 0, 0, 0});
  const uint8_t* frames[] = {a.get(), b.get(), c.get()};
  Array<uint8_t> counts(table(), std::vector<uint8_t>(8, 0xFF));
  table().sign.count_pack(frames, 3, 4, counts.get(), Stream{});
  Wait(table());
  EXPECT_THAT(counts.values(),
              ElementsAre(0b1010'0000, 0, 0, 0, 0b1100'0000, 0, 0, 0));
  Array<float> out(table(), std::vector<float>(4, 99.0f));
  table().sign.count_decode(counts.get(), 3, 4, out.get(), Stream{});
  Wait(table());
  EXPECT_THAT(out.values(), ElementsAre(3, 1, -1, -3));
}

std::pair<std::vector<uint8_t>, std::vector<float>> Count(
    const KernelTable& table, uint32_t num_frames, size_t n, size_t skew) {
  std::vector<std::unique_ptr<Array<uint8_t>>> owned;
  std::vector<const uint8_t*> frames;
  for (uint32_t f = 0; f < num_frames; ++f) {
    owned.push_back(std::make_unique<Array<uint8_t>>(
        table, RandomBytes(SignBytes(n), f + 1000 * n), skew));
    frames.push_back(owned.back()->get());
  }
  Array<uint8_t> counts(
      table, std::vector<uint8_t>(SignCountBytes(n, num_frames), 0x77), skew);
  Array<float> out(table, std::vector<float>(n, 99.0f), 4 * skew);
  table.sign.count_pack(frames.data(), num_frames, n, counts.get(), Stream{});
  table.sign.count_decode(counts.get(), num_frames, n, out.get(), Stream{});
  Wait(table);
  return {counts.values(), out.values()};
}

TEST_P(SignTest, CountsAsTheReference) {
  const auto compare = [&](uint32_t num_frames, size_t n) {
    SCOPED_TRACE(::testing::Message() << num_frames << " frames, n " << n);
    const auto want = Count(ReferenceKernels(), num_frames, n, 0);
    const auto got = Count(table(), num_frames, n, n % 4);
    ASSERT_EQ(got.first, want.first);
    ASSERT_EQ(got.second, want.second);
  };
  for (const size_t n : SizesToTry(table())) {
    for (const uint32_t num_frames : {1u, 2u, 3u, 5u}) compare(num_frames, n);
  }
  for (const uint32_t num_frames : {7u, 8u, 15u, 16u, 31u, 64u, 127u, 1000u}) {
    for (const size_t n : {1u, 31u, 513u, 1031u}) compare(num_frames, n);
  }
}

TEST_P(SignTest, CountsOfTheMostFrames) {
  constexpr size_t kN = 1040;
  constexpr uint32_t kMost = 32767;
  Array<uint8_t> ones(table(), std::vector<uint8_t>(SignBytes(kN), 0xFF));
  const std::vector<const uint8_t*> frames(kMost, ones.get());
  Array<uint8_t> counts(table(),
                        std::vector<uint8_t>(SignCountBytes(kN, kMost)));
  Array<float> out(table(), std::vector<float>(kN, 99.0f));
  table().sign.count_pack(frames.data(), kMost, kN, counts.get(), Stream{});
  table().sign.count_decode(counts.get(), kMost, kN, out.get(), Stream{});
  Wait(table());
  EXPECT_EQ(out.values(), std::vector<float>(kN, 32767));
}

// Counts from the network may hold any bits.
TEST_P(SignTest, CountDecodeOfAnyBytes) {
  for (const uint32_t num_frames : {1u, 2u, 5u, 300u, 32767u}) {
    for (const size_t n : {1u, 32u, 77u, 1031u}) {
      const auto bytes = RandomBytes(SignCountBytes(n, num_frames), n);
      const auto run = [&](const KernelTable& kernels) {
        Array<uint8_t> counts(kernels, bytes, 3);
        Array<float> out(kernels, std::vector<float>(n, 99.0f));
        kernels.sign.count_decode(counts.get(), num_frames, n, out.get(),
                                  Stream{});
        Wait(kernels);
        return out.values();
      };
      ASSERT_EQ(run(table()), run(ReferenceKernels()));
    }
  }
}

// v = 3, -1, 0, -4: scale 2.
TEST_P(SignTest, BlockSignByHand) {
  const Encoded got =
      BlockSign(table(), {2, -1, 0, -3}, {1, 0, 0, -1}, 128, NonFinite::kZero);
  EXPECT_THAT(got.payload, ElementsAre(0, 0, 0, 0x40, 0b1010'0000, 0, 0, 0));
  EXPECT_THAT(got.residual, ElementsAre(1, 1, -2, -2));
  EXPECT_EQ(got.stats.num_nonzero, 4u);
}

TEST_P(SignTest, BlockSignOfZerosAndOfWhatIsNotFinite) {
  std::vector<float> grad(256, 0.0f);
  grad[130] = NAN;
  grad[131] = INFINITY;
  grad[132] = -128;
  const Encoded got =
      BlockSign(table(), grad, std::vector<float>(256), 128, NonFinite::kZero);
  EXPECT_EQ(got.stats.num_nonzero, 128u);
  EXPECT_EQ(got.stats.num_nonfinite, 2u);
  EXPECT_EQ(got.stats.first_nonfinite, 130u);
  EXPECT_EQ(got.residual[0], 0);
  EXPECT_EQ(got.residual[130], -1);
  EXPECT_EQ(got.residual[132], -127);
}

// Sums of magnitudes that overflow still give a finite scale.
TEST_P(SignTest, BlockSignOfTheLargestFloats) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  const Encoded got = BlockSign(table(), std::vector<float>(200, -kLargest),
                                std::vector<float>(200), 128, NonFinite::kZero);
  float scale;
  std::memcpy(&scale, got.payload.data(), 4);
  EXPECT_EQ(scale, kLargest);
  EXPECT_EQ(got.residual, std::vector<float>(200, 0.0f));
}

TEST_P(SignTest, BlockSignAsTheReference) {
  for (const size_t n : SizesToTry()) {
    for (const size_t block : {128u, 1024u, 1152u, 2048u, 8192u}) {
      for (const NonFinite nonfinite : kModes) {
        SCOPED_TRACE(::testing::Message() << "n " << n << " block " << block);
        // A block with special values has a sum that says little of the others.
        const bool specials = n < 4000 && (n + block / 128) % 2 != 0;
        const auto grad = RandomFloats(n, 0.5f, specials, n + 1);
        const auto residual = RandomFloats(n, 0.3f, specials, n + 2);
        const Encoded want = BlockSign(ReferenceKernels(), grad, residual,
                                       block, nonfinite, 0, kUsed);
        ExpectSame(
            BlockSign(table(), grad, residual, block, nonfinite, n % 4, kUsed),
            want);
        const auto run = [&](const KernelTable& kernels, size_t skew) {
          Array<uint8_t> p(kernels, want.payload, skew);
          Array<float> out(kernels, grad, 4 * skew);
          Array<float> sum(kernels, grad, 4 * skew);
          kernels.sign.block_decode(p.get(), n, block, out.get(), Stream{});
          kernels.sign.block_decode_add(p.get(), n, block, sum.get(), Stream{});
          Wait(kernels);
          return std::pair(out.values(), sum.values());
        };
        const auto decoded = run(ReferenceKernels(), 0);
        const auto got = run(table(), n % 4);
        ExpectSameBits(got.first, decoded.first);
        ExpectSameBits(got.second, decoded.second);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, SignTest, ::testing::ValuesIn(Tables()),
                         NameOf);

TEST(SignSizes, AreWholeWords) {
  EXPECT_EQ(OneBitBytes(0), 4u);
  EXPECT_EQ(OneBitBytes(1), 8u);
  EXPECT_EQ(OneBitBytes(33), 12u);
  EXPECT_EQ(SignCountPlanes(1), 1u);
  EXPECT_EQ(SignCountPlanes(3), 2u);
  EXPECT_EQ(SignCountPlanes(4), 3u);
  EXPECT_EQ(SignCountPlanes(32767), 15u);
  EXPECT_EQ(BlockSignBytes(2049, 2048), 8u + 260u);
}

}  // namespace
}  // namespace telegrad::kernels::testing
