#include <cstdint>
#include <utility>
#include <vector>

#include "tests/kernels/kernel_test.h"

// Every table gives what the reference gives, bit for bit.
namespace telegrad::kernels::testing {
namespace {

class EqualsReference : public KernelTest {
 protected:
  // Byte arrays may lie anywhere, others where their type may.
  static constexpr size_t kByteSkew = 3;
  static constexpr size_t kFloatSkew = 4;
};

struct Encoded {
  std::vector<uint8_t> codes;
  std::vector<float> residual;
  EncodeStats stats;
};

Encoded Encode(const KernelTable& table, const std::vector<float>& grad,
               const std::vector<float>& residual, NonFinite nonfinite,
               size_t float_skew, size_t byte_skew) {
  Array<float> g(table, grad, 2 * float_skew);
  Array<float> r(table, residual, float_skew);
  Array<uint8_t> codes(
      table, std::vector<uint8_t>(TwoBitBytes(grad.size()), 0x77), byte_skew);
  Array<EncodeStats> stats(table, {EncodeStats{.num_nonzero = 7,
                                               .num_nonfinite = 3,
                                               .first_nonfinite = 200}});
  table.two_bit_encode(g.get(), r.get(), grad.size(), 0.5f, nonfinite,
                       codes.get(), stats.get(), Stream{});
  Wait(table);
  return {codes.values(), r.values(), stats.values()[0]};
}

TEST_P(EqualsReference, TwoBitEncode) {
  for (const size_t n : SizesToTry(table())) {
    for (const bool specials : {false, true}) {
      for (const NonFinite nonfinite :
           {NonFinite::kZero, NonFinite::kPropagate}) {
        SCOPED_TRACE(::testing::Message()
                     << "n " << n << " specials " << specials << " nonfinite "
                     << static_cast<int>(nonfinite));
        const auto grad = RandomFloats(n, 0.5f, specials, n + 1);
        const auto residual = RandomFloats(n, 0.3f, specials, n + 2);
        const Encoded want =
            Encode(ReferenceKernels(), grad, residual, nonfinite, 0, 0);
        const size_t odd = n % 2;
        const Encoded got = Encode(table(), grad, residual, nonfinite,
                                   odd * kFloatSkew, odd * kByteSkew);
        ASSERT_EQ(got.codes, want.codes);
        ExpectSameBits(got.residual, want.residual);
        ExpectSameStats(got.stats, want.stats);
      }
    }
  }
}

TEST_P(EqualsReference, TwoBitDecodeAndAdd) {
  for (const size_t n : SizesToTry(table())) {
    SCOPED_TRACE(::testing::Message() << "n " << n);
    const auto codes = RandomBytes(TwoBitBytes(n), n);
    const auto base = RandomFloats(n, 1.0f, true, n + 1);
    const auto run = [&](const KernelTable& kernels, size_t skew) {
      Array<uint8_t> c(kernels, codes, skew * kByteSkew);
      Array<float> out(kernels, base, skew * kFloatSkew);
      Array<float> sum(kernels, base, skew * kFloatSkew);
      kernels.two_bit_decode(c.get(), n, 0.1f, out.get(), Stream{});
      kernels.two_bit_decode_add(c.get(), n, 0.1f, sum.get(), Stream{});
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
  std::vector<uint8_t> codes;
};

Summed Sum(const KernelTable& table,
           const std::vector<std::vector<uint8_t>>& contents, size_t n,
           size_t float_skew, size_t byte_skew) {
  const uint32_t num_frames = static_cast<uint32_t>(contents.size());
  std::vector<std::unique_ptr<Array<uint8_t>>> owned;
  std::vector<const uint8_t*> frames;
  for (const auto& content : contents) {
    owned.push_back(
        std::make_unique<Array<uint8_t>>(table, content, byte_skew));
    frames.push_back(owned.back()->get());
  }
  Array<uint8_t> packed(
      table, std::vector<uint8_t>(PackedSumBytes(n, num_frames), 0x77),
      byte_skew);
  Array<float> decoded(table, std::vector<float>(n, 99), float_skew);
  Array<float> fused(table, std::vector<float>(n, 99), float_skew);
  std::vector<int32_t> start(n);
  Random random(n);
  for (int32_t& r : start) r = static_cast<int32_t>(random.NextBelow(41)) - 20;
  Array<int32_t> residual(table, start, float_skew);
  Array<uint8_t> codes(table, std::vector<uint8_t>(TwoBitBytes(n), 0x77),
                       byte_skew);
  table.two_bit_sum_pack(frames.data(), num_frames, n, packed.get(), Stream{});
  table.packed_sum_decode(packed.get(), num_frames, n, 0.1f, decoded.get(),
                          Stream{});
  table.two_bit_sum_decode(frames.data(), num_frames, n, 0.1f, fused.get(),
                           Stream{});
  table.two_bit_reencode(frames.data(), num_frames, n, residual.get(), 2, 7,
                         codes.get(), Stream{});
  Wait(table);
  return {packed.values(), decoded.values(), fused.values(), residual.values(),
          codes.values()};
}

void ExpectSameSums(const KernelTable& table, uint32_t num_frames, size_t n) {
  SCOPED_TRACE(::testing::Message() << "n " << n << " frames " << num_frames);
  std::vector<std::vector<uint8_t>> contents(num_frames);
  for (uint32_t f = 0; f < num_frames; ++f) {
    contents[f] = RandomBytes(TwoBitBytes(n), f + 1000 * n);
  }
  const Summed want = Sum(ReferenceKernels(), contents, n, 0, 0);
  const Summed got = Sum(table, contents, n, n % 2 * 4, n % 4);
  ASSERT_EQ(got.packed, want.packed);
  ExpectSameBits(got.decoded, want.decoded);
  ExpectSameBits(got.fused, want.fused);
  ExpectSameBits(want.fused, want.decoded);
  ASSERT_EQ(got.residual, want.residual);
  ASSERT_EQ(got.codes, want.codes);
}

TEST_P(EqualsReference, SumsOfFewFrames) {
  for (const size_t n : SizesToTry(table())) {
    for (const uint32_t num_frames : {1u, 2u, 3u, 5u}) {
      ExpectSameSums(table(), num_frames, n);
    }
  }
}

TEST_P(EqualsReference, SumsOfManyFrames) {
  for (const uint32_t num_frames :
       {8u, 15u, 16u, 31u, 32u, 63u, 64u, 65u, 127u, 128u, 129u, 255u, 1000u}) {
    for (const size_t n : {size_t{1}, size_t{31}, size_t{513}}) {
      ExpectSameSums(table(), num_frames, n);
    }
  }
}

// The most that the wire allows, all of one sign.
TEST_P(EqualsReference, SumsOfTheMostFrames) {
  constexpr size_t kN = 40;
  const Array<uint8_t> plus(table(),
                            std::vector<uint8_t>(TwoBitBytes(kN), 0xFF));
  const std::vector<const uint8_t*> frames(kMaxSumContributors, plus.get());
  Array<float> out(table(), std::vector<float>(kN, 99));
  table().two_bit_sum_decode(frames.data(), kMaxSumContributors, kN, 0.5f,
                             out.get(), Stream{});
  Wait(table());
  ExpectSameBits(out.values(), std::vector<float>(kN, 16383.5f));
}

// A packed sum from the network may hold any bits.
TEST_P(EqualsReference, PackedSumDecodeOfAnyBytes) {
  for (const uint32_t num_frames : {1u, 2u, 5u, 9u, 300u, 32767u}) {
    for (const size_t n : {size_t{1}, size_t{32}, size_t{77}, size_t{1031}}) {
      const auto packed = RandomBytes(PackedSumBytes(n, num_frames), n);
      const auto run = [&](const KernelTable& kernels) {
        Array<uint8_t> bytes(kernels, packed, kByteSkew);
        Array<float> out(kernels, std::vector<float>(n, 99));
        kernels.packed_sum_decode(bytes.get(), num_frames, n, 0.3f, out.get(),
                                  Stream{});
        Wait(kernels);
        return out.values();
      };
      ExpectSameBits(run(table()), run(ReferenceKernels()));
    }
  }
}

TEST_P(EqualsReference, Scale) {
  for (const size_t n : SizesToTry(table())) {
    SCOPED_TRACE(::testing::Message() << "n " << n);
    const auto values = RandomFloats(n, 1.0f, true, n);
    const auto run = [&](const KernelTable& kernels, size_t skew) {
      Array<float> x(kernels, values, skew);
      kernels.scale_f32(1.0f / 3, n, x.get(), Stream{});
      Wait(kernels);
      return x.values();
    };
    ExpectSameBits(run(table(), n % 2 * kFloatSkew),
                   run(ReferenceKernels(), 0));
  }
}

TEST_P(EqualsReference, AddAndCountAndSgd) {
  for (const size_t n : SizesToTry(table())) {
    SCOPED_TRACE(::testing::Message() << "n " << n);
    const auto x = RandomFloats(n, 1.0f, true, n);
    const auto y = RandomFloats(n, 1.0f, true, n + 1);
    const auto run = [&](const KernelTable& kernels, size_t skew) {
      Array<float> grad(kernels, x, skew);
      Array<float> sum(kernels, y, 2 * skew);
      Array<float> weight(kernels, y, skew);
      Array<float> momentum(kernels, x, skew);
      Array<EncodeStats> stats(kernels, {EncodeStats{.num_nonzero = 5}});
      const SgdParameters params = {.learning_rate = 0.1f,
                                    .momentum_rate = 0.9f,
                                    .weight_decay = 1e-4f,
                                    .rescale = 0.3f};
      kernels.add_f32(grad.get(), n, sum.get(), Stream{});
      kernels.count_nonfinite(grad.get(), n, stats.get(), Stream{});
      kernels.sgd_momentum(grad.get(), n, params, weight.get(), momentum.get(),
                           Stream{});
      Wait(kernels);
      EncodeStats counted = stats.values()[0];
      return std::tuple(sum.values(), weight.values(), momentum.values(),
                        counted.num_nonzero, counted.num_nonfinite,
                        counted.first_nonfinite);
    };
    const auto want = run(ReferenceKernels(), 0);
    const auto got = run(table(), n % 2 * kFloatSkew);
    ExpectSameBits(std::get<0>(got), std::get<0>(want));
    ExpectSameBits(std::get<1>(got), std::get<1>(want));
    ExpectSameBits(std::get<2>(got), std::get<2>(want));
    ASSERT_EQ(std::get<3>(got), 5u);
    ASSERT_EQ(std::get<4>(got), std::get<4>(want));
    ASSERT_EQ(std::get<5>(got), std::get<5>(want));
  }
}

TEST_P(EqualsReference, RescaledUnits) {
  for (const size_t n : SizesToTry(table())) {
    const auto bytes = RandomBytes(4 * n, n);
    std::vector<int32_t> residual(n);
    if (n != 0) std::memcpy(residual.data(), bytes.data(), 4 * n);
    for (const int bits : {1, 2, 11, 100, -1, -9, -40}) {
      SCOPED_TRACE(::testing::Message() << "n " << n << " bits " << bits);
      const auto run = [&](const KernelTable& kernels, size_t skew) {
        Array<int32_t> r(kernels, residual, skew);
        kernels.rescale_units(r.get(), n, bits, Stream{});
        Wait(kernels);
        return r.values();
      };
      ASSERT_EQ(run(table(), n % 2 * 4), run(ReferenceKernels(), 0));
    }
  }
}

TEST_P(EqualsReference, CopiesAndPuts) {
  for (const size_t n : SizesToTry(table())) {
    const auto bytes = RandomBytes(n, n);
    Array<uint8_t> from(table(), bytes, n % 3);
    Array<uint8_t> to(table(), std::vector<uint8_t>(n, 0x77), n % 2);
    table().copy(from.get(), n, to.get(), Stream{});
    table().copy(from.get(), n, from.get(), Stream{});
    Wait(table());
    ASSERT_EQ(to.values(), bytes);
    ASSERT_EQ(from.values(), bytes);
    if (n > kMaxPutBytes) continue;
    Array<uint8_t> put(table(), std::vector<uint8_t>(n, 0x77), n % 2);
    table().put(bytes.data(), n, put.get(), Stream{});
    Wait(table());
    ASSERT_EQ(put.values(), bytes);
  }
}

TEST_P(EqualsReference, BuffersAreZerosOfTheDevice) {
  constexpr size_t kBytes = 1000;
  const Buffer buffer = table().make_buffer(kBytes, 0, {});
  ASSERT_EQ(buffer.size(), kBytes);
  EXPECT_EQ(buffer.view().device.kind, table().device);
  Array<uint8_t> copy(table(), std::vector<uint8_t>(kBytes, 0x77));
  table().copy(buffer.data(), kBytes, copy.get(), Stream{});
  Wait(table());
  EXPECT_EQ(copy.values(), std::vector<uint8_t>(kBytes));
}

TEST_P(EqualsReference, SampledPower) {
  for (const size_t n : SizesToTry(table())) {
    SCOPED_TRACE(::testing::Message() << "n " << n);
    const auto grad = RandomFloats(n, 1.0f, true, n);
    const auto residual = RandomFloats(n, 1e-3f, false, n + 1);
    const auto run = [&](const KernelTable& kernels, bool has_residual) {
      Array<float> g(kernels, grad);
      Array<float> r(kernels, residual);
      Array<double> power(kernels, {-1.0});
      kernels.sampled_power(g.get(), has_residual ? r.get() : nullptr, n,
                            power.get(), Stream{});
      Wait(kernels);
      return std::bit_cast<uint64_t>(power.values()[0]);
    };
    ASSERT_EQ(run(table(), true), run(ReferenceKernels(), true));
    ASSERT_EQ(run(table(), false), run(ReferenceKernels(), false));
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, EqualsReference,
                         ::testing::ValuesIn(Tables()), NameOf);

TEST(Dispatch, CpuKernelsAreOneOfTheTables) {
  EXPECT_THAT(AllCpuKernels(), ::testing::Contains(&CpuKernels()));
}

TEST(Dispatch, SaysWhyThereAreNoCudaKernels) {
  std::string why_not;
  const KernelTable* cuda = CudaKernels(&why_not);
  EXPECT_EQ(cuda == nullptr, !why_not.empty());
}

}  // namespace
}  // namespace telegrad::kernels::testing
