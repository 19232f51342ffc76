#include <bit>
#include <cstdint>
#include <limits>
#include <vector>

#include "tests/kernels/kernel_test.h"

// Survivors of a threshold: every table gives what the reference gives, and
// the reference what is written down by hand.
namespace telegrad::kernels::testing {
namespace {

class Sparse : public KernelTest {};

enum class Rule { kThreshold, kLarge, kMomentum };
constexpr Rule kRules[] = {Rule::kThreshold, Rule::kLarge, Rule::kMomentum};

struct Inputs {
  std::vector<float> grad;
  std::vector<float> residual;
  std::vector<float> momentum;
  float threshold = 0.5f;
  NonFinite nonfinite = NonFinite::kZero;
};

struct Outputs {
  std::vector<uint32_t> indices;  // or words
  std::vector<float> values;
  std::vector<float> residual;
  std::vector<float> momentum;
  EncodeStats stats;
};

Outputs Apply(Rule rule, const KernelTable& table, const Inputs& in,
              size_t skew = 0) {
  const size_t n = in.grad.size();
  Array<float> g(table, in.grad, 2 * skew);
  Array<float> r(table, in.residual, skew);
  Array<float> u(table, in.momentum, 3 * skew);
  Array<uint32_t> list(table, std::vector<uint32_t>(n + kSurvivorSlack));
  Array<float> values(table, std::vector<float>(n + kSurvivorSlack));
  Array<uint64_t> count(table, {99});
  Array<EncodeStats> stats(
      table, {{.num_nonzero = 7, .num_nonfinite = 3, .first_nonfinite = 200}});
  Array<uint64_t> scratch(
      table, std::vector<uint64_t>(SparseScratchBytes(n) / 8, 0x55));
  Array<float> threshold(table, {in.threshold});
  Array<float> scale(table, {0.75f});
  const SparseKernels& sparse = table.sparse;
  if (rule == Rule::kThreshold) {
    sparse.threshold_encode(g.get(), r.get(),
                            in.momentum.empty() ? nullptr : u.get(), n,
                            in.threshold, in.nonfinite, list.get(), count.get(),
                            stats.get(), scratch.get(), Stream{});
  } else if (rule == Rule::kLarge) {
    sparse.large_values(g.get(), r.get(), n, threshold.get(), in.nonfinite,
                        list.get(), values.get(), count.get(), stats.get(),
                        scratch.get(), Stream{});
  } else {
    sparse.momentum_large_values(
        g.get(), {.rate = 0.9f, .scale = scale.get()}, u.get(), r.get(), n,
        threshold.get(), in.nonfinite, list.get(), values.get(), count.get(),
        stats.get(), scratch.get(), Stream{});
  }
  Wait(table);
  Outputs out = {list.values(), values.values(), r.values(), u.values(),
                 stats.values()[0]};
  out.indices.resize(count.values()[0]);
  out.values.resize(rule == Rule::kThreshold ? 0 : count.values()[0]);
  return out;
}

void ExpectSame(const Outputs& got, const Outputs& want) {
  ASSERT_EQ(got.indices, want.indices);
  ExpectSameBits(got.values, want.values);
  ExpectSameBits(got.residual, want.residual);
  ExpectSameBits(got.momentum, want.momentum);
  ExpectSameStats(got.stats, want.stats);
}

Inputs RandomInputs(size_t n, bool specials) {
  return {.grad = RandomFloats(n, 0.5f, specials, n + 1),
          .residual = RandomFloats(n, 0.3f, specials, n + 2),
          .momentum = RandomFloats(n, 0.3f, specials, n + 3)};
}

TEST_P(Sparse, EqualsReference) {
  for (const size_t n : SizesToTry(table())) {
    for (const bool specials : {false, true}) {
      Inputs in = RandomInputs(n, specials);
      for (const NonFinite nonfinite :
           {NonFinite::kZero, NonFinite::kPropagate}) {
        in.nonfinite = nonfinite;
        for (const Rule rule : kRules) {
          SCOPED_TRACE(::testing::Message()
                       << "n " << n << " specials " << specials << " nonfinite "
                       << static_cast<int>(nonfinite) << " rule "
                       << static_cast<int>(rule));
          ExpectSame(Apply(rule, table(), in, n % 2 * 4),
                     Apply(rule, ReferenceKernels(), in));
        }
      }
    }
  }
}

// From all survivors to none.
TEST_P(Sparse, EqualsReferenceAtAnyDensity) {
  Inputs in = RandomInputs(10007, false);
  for (const float threshold :
       {std::numeric_limits<float>::denorm_min(), 0.01f, 1.5f, 2.5f, 1e30f}) {
    in.threshold = threshold;
    for (const Rule rule : kRules) {
      SCOPED_TRACE(::testing::Message() << "threshold " << threshold);
      ExpectSame(Apply(rule, table(), in), Apply(rule, ReferenceKernels(), in));
    }
  }
  in.threshold = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(Apply(Rule::kLarge, table(), in).indices.empty());
}

// Without a threshold nothing is listed, without a scale it is 1.
TEST_P(Sparse, ThresholdAndScaleMayBeLeftOut) {
  Array<float> g(table(), {4, -8});
  Array<float> r(table(), {1, 1});
  Array<float> u(table(), {2, 2});
  Array<uint32_t> indices(table(), std::vector<uint32_t>(2 + kSurvivorSlack));
  Array<float> values(table(), std::vector<float>(2 + kSurvivorSlack));
  Array<uint64_t> count(table(), {99});
  Array<EncodeStats> stats(table(), {EncodeStats{}});
  Array<uint64_t> scratch(table(),
                          std::vector<uint64_t>(SparseScratchBytes(2) / 8));
  table().sparse.momentum_large_values(g.get(), {.rate = 0.5f}, u.get(),
                                       r.get(), 2, nullptr, NonFinite::kZero,
                                       indices.get(), values.get(), count.get(),
                                       stats.get(), scratch.get(), Stream{});
  Wait(table());
  EXPECT_EQ(count.values()[0], 0u);
  EXPECT_EQ(u.values(), (std::vector<float>{5, -7}));
  EXPECT_EQ(r.values(), (std::vector<float>{6, -6}));
}

TEST_P(Sparse, ThresholdIsInclusiveAndTakenOffOnce) {
  const Outputs out = Apply(Rule::kThreshold, table(),
                            {.grad = {0.5f, -0.5f, 0.49999997f, 0.25f, -1.75f},
                             .residual = {0, 0, 0, 0.25f, 0.5f},
                             .momentum = {}});
  EXPECT_EQ(out.indices, (std::vector<uint32_t>{0, 3, 6, 9}));
  EXPECT_EQ(out.residual, (std::vector<float>{0, 0, 0.49999997f, 0, -0.75f}));
  EXPECT_EQ(out.stats.num_nonzero, 7u + 4u);
}

TEST_P(Sparse, NonFiniteElementsAreCountedOrStay) {
  Inputs in = {.grad = {1, NAN, -INFINITY, 1},
               .residual = {0, 1, 0.25f, 0},
               .momentum = {0, 1, 0, 1}};
  Outputs out = Apply(Rule::kLarge, table(), in);
  EXPECT_EQ(out.indices, (std::vector<uint32_t>{0, 1, 3}));
  EXPECT_EQ(out.residual, (std::vector<float>{1, 1, 0.25f, 1}));
  EXPECT_EQ(out.stats.num_nonfinite, 3u + 2u);
  EXPECT_EQ(out.stats.first_nonfinite, 1u);
  out = Apply(Rule::kMomentum, table(), in);
  EXPECT_EQ(out.momentum, (std::vector<float>{0.75f, 0.9f, 0, 0.9f + 0.75f}));
  EXPECT_EQ(out.residual,
            (std::vector<float>{0.75f, 1.9f, 0.25f, 0.9f + 0.75f}));
  in.nonfinite = NonFinite::kPropagate;
  out = Apply(Rule::kLarge, table(), in);
  EXPECT_EQ(out.indices, (std::vector<uint32_t>{0, 3}));
  EXPECT_TRUE(std::isnan(out.residual[1]));
  EXPECT_EQ(out.residual[2], -INFINITY);
}

INSTANTIATE_TEST_SUITE_P(Tables, Sparse, ::testing::ValuesIn(Tables()), NameOf);

}  // namespace
}  // namespace telegrad::kernels::testing
