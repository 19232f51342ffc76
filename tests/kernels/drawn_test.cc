#include "kernels/drawn.h"

#include <cstdint>
#include <vector>

#include "tests/kernels/kernel_test.h"

// Elements that all draw alike: every table gives what the reference gives, and
// the reference draws what base/random.h does.
namespace telegrad::kernels::testing {
namespace {

class Drawn : public KernelTest {};

constexpr uint64_t kSeed = 0x123456789ABCDEF0;

struct Outputs {
  std::vector<uint8_t> payload;
  std::vector<float> residual;
  std::vector<float> momentum;
  std::vector<float> decoded;
  std::vector<float> sum;
  std::vector<uint8_t> payload_sum;
  EncodeStats stats;
};

// Arrays and payloads lie `skew` bytes off a border, a multiple of 4.
Outputs Apply(const KernelTable& table, size_t n, size_t k, size_t skew) {
  const std::vector<uint8_t> empty(kDrawnValuesAt + 4 * k, 0x5A);
  Array<float> residual(table, RandomFloats(n, 1, true, n), skew);
  Array<float> momentum(table, RandomFloats(n, 1, false, n + 3), skew);
  Array<float> other(table, RandomFloats(n, 1, false, n + 1), skew);
  Array<uint8_t> first(table, empty, skew);
  Array<uint8_t> second(table, empty, skew);
  Array<uint8_t> payload_sum(table, empty, skew);
  Array<EncodeStats> stats(table, {{.num_nonzero = 7, .num_nonfinite = 3}});
  Array<float> decoded(table, std::vector<float>(n, 9.0f), skew);
  Array<float> sum(table, RandomFloats(n, 1, false, n + 2), skew);
  table.drawn.take(residual.get(), momentum.get(), n, k, kSeed, first.get(),
                   stats.get(), {});
  table.drawn.take(other.get(), nullptr, n, k, kSeed, second.get(), stats.get(),
                   {});
  table.drawn.decode(first.get(), n, k, decoded.get(), {});
  table.drawn.decode_add(first.get(), n, k, sum.get(), {});
  const uint8_t* const payloads[] = {first.get(), second.get(), first.get()};
  table.drawn.sum(payloads, 3, k, payload_sum.get(), {});
  Wait(table);
  return {first.values(),   residual.values(), momentum.values(),
          decoded.values(), sum.values(),      payload_sum.values(),
          stats.values()[0]};
}

TEST_P(Drawn, EqualsReference) {
  for (const size_t n : SizesToTry(table())) {
    if (n == 0) continue;  // of nothing, nothing is drawn
    for (const size_t k : {size_t{1}, n / 7 + 1, n}) {
      const size_t skew = 4 * ((n + k) % 16);
      SCOPED_TRACE(::testing::Message()
                   << "n " << n << " k " << k << " skew " << skew);
      const Outputs got = Apply(table(), n, k, skew);
      const Outputs want = Apply(ReferenceKernels(), n, k, 0);
      EXPECT_EQ(got.payload, want.payload);
      EXPECT_EQ(got.payload_sum, want.payload_sum);
      ExpectSameBits(got.residual, want.residual);
      ExpectSameBits(got.momentum, want.momentum);
      ExpectSameBits(got.decoded, want.decoded);
      ExpectSameBits(got.sum, want.sum);
      ExpectSameStats(got.stats, want.stats);
    }
  }
}

TEST(DrawnWords, AreThoseOfPhiloxWithTenRounds) {
  for (const size_t j : {0, 1, 4, 1000003}) {
    const auto want = ::telegrad::Philox(kSeed, j / 4);
    const PhiloxWords words = DrawnWords(kSeed, j);
    for (int w = 0; w < 4; ++w) EXPECT_EQ(words.word[w], want[w]);
  }
}

TEST_P(Drawn, OneOfEachStratumIsTakenOnce) {
  const size_t n = 1000;
  const size_t k = 10;
  Array<float> residual(table(), std::vector<float>(n, 2.0f));
  Array<uint8_t> payload(table(), std::vector<uint8_t>(kDrawnValuesAt + 4 * k));
  Array<EncodeStats> stats(table(), {EncodeStats{}});
  table().drawn.take(residual.get(), nullptr, n, k, kSeed, payload.get(),
                     stats.get(), {});
  Wait(table());
  EXPECT_EQ(stats.values()[0].num_nonzero, k);
  const std::vector<float> left = residual.values();
  for (size_t j = 0; j < k; ++j) {
    EXPECT_EQ(
        std::count(left.begin() + 100 * j, left.begin() + 100 * (j + 1), 0.0f),
        1);
  }
}

INSTANTIATE_TEST_SUITE_P(Tables, Drawn, ::testing::ValuesIn(Tables()), NameOf);

}  // namespace
}  // namespace telegrad::kernels::testing
