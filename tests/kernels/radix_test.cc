#include "kernels/radix.h"

#include <cstdint>
#include <memory>
#include <vector>

#include "tests/kernels/kernel_test.h"

namespace telegrad::kernels::testing {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

class Radix : public KernelTest {};

struct Encoded {
  std::vector<uint8_t> payload;
  std::vector<float> residual;
  EncodeStats stats;
};

Encoded Encode(const KernelTable& table, TwoBitEncodeFn* encode,
               size_t num_bytes, const std::vector<float>& grad,
               const std::vector<float>& residual, NonFinite nonfinite,
               size_t skew) {
  Array<float> g(table, grad, 8 * skew);
  Array<float> r(table, residual, 4 * skew);
  Array<uint8_t> payload(table, std::vector<uint8_t>(num_bytes, 0x77),
                         3 * skew);
  Array<EncodeStats> stats(table, {EncodeStats{.num_nonzero = 7,
                                               .num_nonfinite = 3,
                                               .first_nonfinite = 200}});
  encode(g.get(), r.get(), grad.size(), 0.5f, nonfinite, payload.get(),
         stats.get(), Stream{});
  Wait(table);
  return {payload.values(), r.values(), stats.values()[0]};
}

void ExpectSame(const Encoded& got, const Encoded& want) {
  ASSERT_EQ(got.payload, want.payload);
  ExpectSameBits(got.residual, want.residual);
  ExpectSameStats(got.stats, want.stats);
}

std::vector<size_t> RadixSizes(const KernelTable& table) {
  std::vector<size_t> sizes = SizesToTry(table);
  for (const size_t n : {319, 320, 321, 639, 640, 641, 959, 961, 3203}) {
    sizes.push_back(n);
  }
  return sizes;
}

TEST_P(Radix, EncodeEqualsReference) {
  for (const size_t n : RadixSizes(table())) {
    for (const bool specials : {false, true}) {
      for (const NonFinite mode : {NonFinite::kZero, NonFinite::kPropagate}) {
        SCOPED_TRACE(::testing::Message() << n << " " << specials);
        const auto grad = RandomFloats(n, 0.5f, specials, n + 1);
        const auto residual = RandomFloats(n, 0.3f, specials, n + 2);
        const KernelTable& reference = ReferenceKernels();
        const size_t bytes = RadixBytes(n);
        ExpectSame(Encode(table(), table().radix.encode, bytes, grad, residual,
                          mode, n % 2),
                   Encode(reference, reference.radix.encode, bytes, grad,
                          residual, mode, 0));
      }
    }
  }
}

// The packing changes no residual, no count and no decoded value.
TEST_P(Radix, HoldsTheSameCodesAsTwoBits) {
  for (const size_t n : RadixSizes(table())) {
    const auto grad = RandomFloats(n, 0.5f, true, n + 1);
    const auto residual = RandomFloats(n, 0.3f, true, n + 2);
    const Encoded radix = Encode(table(), table().radix.encode, RadixBytes(n),
                                 grad, residual, NonFinite::kZero, 0);
    const Encoded plain =
        Encode(table(), table().two_bit_encode, TwoBitBytes(n), grad, residual,
               NonFinite::kZero, 0);
    ExpectSameBits(radix.residual, plain.residual);
    ASSERT_EQ(radix.stats.num_nonzero, plain.stats.num_nonzero);
    ASSERT_EQ(radix.stats.first_nonfinite, plain.stats.first_nonfinite);
    ASSERT_THAT(radix.payload, Each(::testing::Lt(kRadixByteEnd)));
    const auto decoded = [&](TwoBitDecodeFn* decode,
                             const std::vector<uint8_t>& bytes) {
      Array<uint8_t> payload(table(), bytes);
      Array<float> out(table(), std::vector<float>(n, 99));
      decode(payload.get(), n, 0.1f, out.get(), Stream{});
      Wait(table());
      return out.values();
    };
    ExpectSameBits(decoded(table().radix.decode, radix.payload),
                   decoded(table().two_bit_decode, plain.payload));
  }
}

TEST_P(Radix, DecodeOfAnyBytesEqualsReference) {
  for (const size_t n : RadixSizes(table())) {
    SCOPED_TRACE(::testing::Message() << "n " << n);
    const auto bytes = RandomBytes(RadixBytes(n), n);
    const auto base = RandomFloats(n, 1.0f, true, n + 1);
    const auto run = [&](const KernelTable& kernels, size_t skew) {
      Array<uint8_t> payload(kernels, bytes, skew * 3);
      Array<float> out(kernels, base, skew * 4);
      Array<float> sum(kernels, base, skew * 4);
      kernels.radix.decode(payload.get(), n, 0.1f, out.get(), Stream{});
      kernels.radix.decode_add(payload.get(), n, 0.1f, sum.get(), Stream{});
      Wait(kernels);
      return std::pair(out.values(), sum.values());
    };
    const auto want = run(ReferenceKernels(), 0);
    const auto got = run(table(), n % 2);
    ExpectSameBits(got.first, want.first);
    ExpectSameBits(got.second, want.second);
  }
}

struct Summed {
  std::vector<uint8_t> packed;
  std::vector<float> decoded;
  std::vector<float> fused;
  std::vector<int32_t> residual;
  std::vector<uint8_t> payload;
};

Summed Sum(const KernelTable& table,
           const std::vector<std::vector<uint8_t>>& contents, size_t n,
           size_t skew) {
  const auto num_frames = static_cast<uint32_t>(contents.size());
  std::vector<std::unique_ptr<Array<uint8_t>>> owned;
  std::vector<const uint8_t*> frames;
  for (const auto& content : contents) {
    owned.push_back(std::make_unique<Array<uint8_t>>(table, content, 3 * skew));
    frames.push_back(owned.back()->get());
  }
  Array<uint8_t> packed(
      table, std::vector<uint8_t>(RadixSumBytes(n, num_frames), 0x77), skew);
  Array<float> decoded(table, std::vector<float>(n, 99), 4 * skew);
  Array<float> fused(table, std::vector<float>(n, 99), 4 * skew);
  std::vector<int32_t> start(n);
  Random random(n);
  for (int32_t& r : start) r = static_cast<int32_t>(random.NextBelow(41)) - 20;
  Array<int32_t> residual(table, start, 4 * skew);
  Array<uint8_t> payload(table, std::vector<uint8_t>(RadixBytes(n), 0x77),
                         skew);
  const RadixKernels& radix = table.radix;
  radix.sum_pack(frames.data(), num_frames, n, packed.get(), Stream{});
  radix.packed_sum_decode(packed.get(), num_frames, n, 0.1f, decoded.get(),
                          Stream{});
  radix.sum_decode(frames.data(), num_frames, n, 0.1f, fused.get(), Stream{});
  radix.reencode(frames.data(), num_frames, n, residual.get(), 2, 7,
                 payload.get(), Stream{});
  Wait(table);
  return {packed.values(), decoded.values(), fused.values(), residual.values(),
          payload.values()};
}

void ExpectSameSums(const KernelTable& table, uint32_t num_frames, size_t n) {
  SCOPED_TRACE(::testing::Message() << "n " << n << " frames " << num_frames);
  std::vector<std::vector<uint8_t>> contents(num_frames);
  for (uint32_t f = 0; f < num_frames; ++f) {
    contents[f] = RandomBytes(RadixBytes(n), f + 1000 * n);
  }
  const Summed want = Sum(ReferenceKernels(), contents, n, 0);
  const Summed got = Sum(table, contents, n, n % 2);
  ASSERT_EQ(got.packed, want.packed);
  ExpectSameBits(got.decoded, want.decoded);
  ExpectSameBits(got.fused, want.fused);
  ExpectSameBits(want.fused, want.decoded);
  ASSERT_EQ(got.residual, want.residual);
  ASSERT_EQ(got.payload, want.payload);
}

TEST_P(Radix, SumsOfFewFramesEqualReference) {
  for (const size_t n : RadixSizes(table())) {
    if (n > 20000 && table().device == DeviceKind::kCpu) continue;
    for (const uint32_t num_frames : {1u, 2u, 3u, 8u}) {
      ExpectSameSums(table(), num_frames, n);
    }
  }
}

TEST_P(Radix, SumsOfManyFramesEqualReference) {
  for (const uint32_t num_frames :
       {4u, 5u, 6u, 7u, 15u, 16u, 31u, 63u, 64u, 65u, 128u, 255u, 1000u}) {
    for (const size_t n : {size_t{1}, size_t{31}, size_t{2053}}) {
      ExpectSameSums(table(), num_frames, n);
    }
  }
}

TEST_P(Radix, SumsOfTheMostFrames) {
  constexpr size_t kN = 40;
  const Array<uint8_t> plus(table(), std::vector<uint8_t>(RadixBytes(kN), 242));
  const std::vector<const uint8_t*> frames(kMaxSumContributors, plus.get());
  Array<float> out(table(), std::vector<float>(kN, 99));
  table().radix.sum_decode(frames.data(), kMaxSumContributors, kN, 0.5f,
                           out.get(), Stream{});
  Wait(table());
  ExpectSameBits(out.values(), std::vector<float>(kN, 16383.5f));
}

TEST_P(Radix, PackedSumDecodeOfAnyBytesEqualsReference) {
  for (const uint32_t num_frames : {1u, 2u, 4u, 5u, 8u, 9u, 300u, 32767u}) {
    for (const size_t n : {size_t{1}, size_t{96}, size_t{77}, size_t{4447}}) {
      const auto packed = RandomBytes(RadixSumBytes(n, num_frames), n);
      const auto run = [&](const KernelTable& kernels) {
        Array<uint8_t> bytes(kernels, packed, 3);
        Array<float> out(kernels, std::vector<float>(n, 99));
        kernels.radix.packed_sum_decode(bytes.get(), num_frames, n, 0.3f,
                                        out.get(), Stream{});
        Wait(kernels);
        return out.values();
      };
      ExpectSameBits(run(table()), run(ReferenceKernels()));
    }
  }
}

// 7 elements in 2 bytes: digits of the first are elements 0, 2, 4, 6.
TEST_P(Radix, CodesByHand) {
  const Encoded encoded =
      Encode(table(), table().radix.encode, 2, {1, -1, 0, 2, -.25f, .5f, -.5f},
             std::vector<float>(7, 0), NonFinite::kZero, 0);
  EXPECT_THAT(encoded.payload,
              ElementsAre(2 + 3 * 1 + 9 * 1 + 27 * 0, 0 + 3 * 2 + 9 * 2));
  EXPECT_THAT(encoded.residual, ElementsAre(.5f, -.5f, 0, 1.5f, -.25f, 0, 0));
}

// Codes +, -, 0, + and +, -, -, 0: k + 2 = 4, 0, 1, 3, each the lowest digit,
// in radix 5, of a number of 7 bits.
TEST_P(Radix, SumsOfTwoFramesByHand) {
  Array<uint8_t> first(table(), {2 + 3 * 0 + 9 * 1 + 27 * 2});
  Array<uint8_t> second(table(), {2 + 3 * 0 + 9 * 0 + 27 * 1});
  const uint8_t* frames[] = {first.get(), second.get()};
  Array<uint8_t> packed(table(), std::vector<uint8_t>(28, 0xFF));
  ASSERT_EQ(RadixSumBytes(4, 2), 28u);
  table().radix.sum_pack(frames, 2, 4, packed.get(), Stream{});
  Wait(table());
  std::vector<uint8_t> want(28, 0);
  want[0] = 0b1100;
  want[4] = 0b1000;
  want[8] = 0b0001;
  EXPECT_THAT(packed.values(), ElementsAreArray(want));
  Array<float> out(table(), std::vector<float>(4, 99.0f));
  table().radix.packed_sum_decode(packed.get(), 2, 4, .25f, out.get(),
                                  Stream{});
  Wait(table());
  EXPECT_THAT(out.values(), ElementsAre(.5f, -.5f, -.25f, .25f));
}

INSTANTIATE_TEST_SUITE_P(Kernels, Radix, ::testing::ValuesIn(Tables()), NameOf);

TEST(RadixSizes, AreFiveCodesToAByte) {
  EXPECT_EQ(RadixBytes(0), 0u);
  EXPECT_EQ(RadixBytes(1), 1u);
  EXPECT_EQ(RadixBytes(5), 1u);
  EXPECT_EQ(RadixBytes(6), 2u);
  EXPECT_EQ(RadixBytes(320), 64u);
  EXPECT_EQ(RadixBytes(321), 65u);
}

TEST(DigitGroups, AreTheDensestOfAtMost31Bits) {
  const auto is = [](uint32_t w, uint32_t digits, uint32_t bits) {
    const DigitGroup group = DigitGroupFor(w);
    return group.digits == digits && group.bits == bits;
  };
  EXPECT_TRUE(is(1, 5, 8));
  EXPECT_TRUE(is(2, 3, 7));
  EXPECT_TRUE(is(3, 11, 31));
  EXPECT_TRUE(is(4, 5, 16));
  EXPECT_TRUE(is(8, 7, 29));
  EXPECT_TRUE(is(16, 6, 31));
  EXPECT_TRUE(is(kMaxSumContributors, 1, 16));
}

// At the multiples of the radix, where a reciprocal goes wrong first.
TEST(DigitGroups, DivideExactly) {
  for (uint32_t w = 1; w <= kMaxSumContributors; w = w * 5 / 4 + 1) {
    const DigitGroup group = DigitGroupFor(w);
    ASSERT_LE(group.end, uint64_t{1} << group.bits);
    const uint32_t last = (uint32_t{1} << group.bits) - 1;
    for (uint32_t trial = 0; trial < 2000; ++trial) {
      const uint32_t multiple = last / group.radix / 2000 * trial * group.radix;
      for (const uint32_t x :
           {multiple, multiple + group.radix - 1, last - trial % last}) {
        ASSERT_EQ(DivideByRadix(x, group), x / group.radix) << w << " " << x;
      }
    }
  }
}

}  // namespace
}  // namespace telegrad::kernels::testing
