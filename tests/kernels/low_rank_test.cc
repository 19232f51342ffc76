#include "kernels/low_rank.h"

#include <cstdint>
#include <vector>

#include "tests/kernels/kernel_test.h"

// The reference by hand; every other table against the reference.
namespace telegrad::kernels::testing {
namespace {

class LowRank : public KernelTest {
 protected:
  void SetUp() override {
    KernelTest::SetUp();
    if (GetParam() != nullptr && table().low_rank.expand == nullptr) {
      GTEST_SKIP() << "no low-rank kernels for this device";
    }
  }
};

struct Problem {
  LowRankShape shape;
  std::vector<float> grad, residual, left, right;
};

// With `specials`, gradients and residuals hold NaN, infinities and the like.
Problem MakeProblem(size_t n, size_t cols, uint32_t rank, bool specials) {
  Problem problem;
  problem.shape.n = n;
  problem.shape.cols = cols;
  problem.shape.rank = rank;
  problem.grad = RandomFloats(n, 0.5f, specials, n + 1);
  problem.residual = RandomFloats(n, 0.3f, specials, n + 2);
  problem.left = RandomFloats(problem.shape.rows() * rank, 0.4f, false, n + 3);
  problem.right = RandomFloats(cols * rank, 0.4f, false, n + 4);
  return problem;
}

struct Fitted {
  std::vector<float> residual, factor;
  EncodeStats stats;
};

Fitted Fit(const KernelTable& table, const Problem& problem, bool is_left,
           NonFinite nonfinite, size_t skew) {
  Array<float> grad(table, problem.grad, 2 * skew);
  Array<float> residual(table, problem.residual, skew);
  Array<float> left(table, problem.left, skew);
  Array<float> right(table, problem.right, 3 * skew);
  Array<EncodeStats> stats(table, {EncodeStats{.num_nonzero = 7,
                                               .num_nonfinite = 3,
                                               .first_nonfinite = 200}});
  const LowRankKernels& kernels = table.low_rank;
  if (is_left) {
    kernels.fit_left(grad.get(), residual.get(), problem.shape, right.get(),
                     nonfinite, left.get(), stats.get(), Stream{});
  } else {
    kernels.fit_right(grad.get(), residual.get(), problem.shape, left.get(),
                      nonfinite, right.get(), stats.get(), Stream{});
  }
  Wait(table);
  return {residual.values(), is_left ? left.values() : right.values(),
          stats.values()[0]};
}

void ExpectEqualsReference(const KernelTable& table, const Problem& problem) {
  for (const bool is_left : {true, false}) {
    for (const NonFinite nonfinite :
         {NonFinite::kZero, NonFinite::kPropagate}) {
      SCOPED_TRACE(::testing::Message()
                   << "n " << problem.shape.n << " cols " << problem.shape.cols
                   << " rank " << problem.shape.rank << " left " << is_left);
      const Fitted want =
          Fit(ReferenceKernels(), problem, is_left, nonfinite, 0);
      const Fitted got =
          Fit(table, problem, is_left, nonfinite, 4 * (problem.shape.n % 2));
      ExpectSameBits(got.residual, want.residual);
      ExpectSameBits(got.factor, want.factor);
      ASSERT_EQ(got.stats.num_nonzero, 7u);
      ASSERT_EQ(got.stats.num_nonfinite, want.stats.num_nonfinite);
      ASSERT_EQ(got.stats.first_nonfinite, want.stats.first_nonfinite);
    }
  }
}

TEST_P(LowRank, FitsEqualTheReference) {
  for (const size_t n : SizesToTry()) {
    if (n == 0) continue;  // no codec prepares for it
    const size_t cols = n > 5000 ? 320 : 16 * (1 + n % 5);
    const auto rank = static_cast<uint32_t>(1 + n % 9);
    ExpectEqualsReference(table(), MakeProblem(n, cols, rank, false));
    ExpectEqualsReference(table(), MakeProblem(n, cols, rank, true));
    if (HasFatalFailure()) return;
  }
}

TEST_P(LowRank, RowsLongerThanATile) {
  ExpectEqualsReference(table(), MakeProblem(7001, 3200, 3, true));
}

TEST_P(LowRank, ExpansionsEqualTheReference) {
  for (const size_t n : SizesToTry()) {
    if (n == 0) continue;
    SCOPED_TRACE(::testing::Message() << "n " << n);
    const Problem problem = MakeProblem(
        n, n > 5000 ? 2064 : 48, static_cast<uint32_t>(1 + n % 9), false);
    const auto run = [&](const KernelTable& kernels, size_t skew) {
      Array<float> left(kernels, problem.left, skew);
      Array<float> right(kernels, problem.right, skew);
      Array<float> out(kernels, problem.grad, skew);
      Array<float> sum(kernels, problem.residual, skew);
      kernels.low_rank.expand(left.get(), right.get(), problem.shape, out.get(),
                              Stream{});
      kernels.low_rank.expand_add(left.get(), right.get(), problem.shape,
                                  sum.get(), Stream{});
      Wait(kernels);
      return std::pair(out.values(), sum.values());
    };
    const auto want = run(ReferenceKernels(), 0);
    const auto got = run(table(), 4 * (n % 2));
    ExpectSameBits(got.first, want.first);
    ExpectSameBits(got.second, want.second);
    if (HasFatalFailure()) return;
  }
}

// M = [[1 .. 1], [2 .. 2 (8), none]], basis 1/4 everywhere: P = (4, 4).
TEST_P(LowRank, FitLeftByHand) {
  Problem problem = MakeProblem(24, 16, 1, false);
  for (size_t i = 0; i < 24; ++i) {
    problem.grad[i] = i < 16 ? 0.5f : 1.0f;
    problem.residual[i] = problem.grad[i];
  }
  problem.right.assign(16, 0.25f);
  const Fitted got = Fit(table(), problem, true, NonFinite::kZero, 0);
  EXPECT_EQ(got.factor, (std::vector<float>{4, 4}));
  for (size_t i = 0; i < 24; ++i) {
    EXPECT_EQ(got.residual[i], i < 16 ? 0.0f : 1.0f) << i;
  }
}

// Basis (3/4, 1/2) on the left: Q = 3/4 * 1 + 1/2 * 2, without the second row
// where that ends.
TEST_P(LowRank, FitRightByHand) {
  Problem problem = MakeProblem(24, 16, 1, false);
  for (size_t i = 0; i < 24; ++i) problem.grad[i] = i < 16 ? 1.0f : 2.0f;
  problem.residual.assign(24, 0.0f);
  problem.left = {0.75f, 0.5f};
  const Fitted got = Fit(table(), problem, false, NonFinite::kZero, 0);
  for (size_t j = 0; j < 16; ++j) {
    const float factor = j < 8 ? 1.75f : 0.75f;
    EXPECT_EQ(got.factor[j], factor) << j;
    EXPECT_EQ(got.residual[j], 1.0f - 0.75f * factor) << j;
    if (j < 8) {
      EXPECT_EQ(got.residual[16 + j], 2.0f - 0.5f * factor) << j;
    }
  }
}

TEST_P(LowRank, FactorsAreLimited) {
  Problem problem = MakeProblem(32, 16, 1, false);
  problem.residual.assign(32, 0.0f);
  for (size_t i = 0; i < 32; ++i) problem.grad[i] = i < 16 ? 3e38f : -3e38f;
  problem.right.assign(16, 1.0f);
  const Fitted got = Fit(table(), problem, true, NonFinite::kZero, 0);
  EXPECT_EQ(got.factor, (std::vector<float>{kMaxFactor, -kMaxFactor}));
}

INSTANTIATE_TEST_SUITE_P(Tables, LowRank, ::testing::ValuesIn(Tables()),
                         NameOf);

}  // namespace
}  // namespace telegrad::kernels::testing
