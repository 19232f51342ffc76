#include "kernels/low_rank.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
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

struct Payload {
  std::vector<float> words;  // the header is the first
  std::vector<double> vectors;

  LowRankHeader header() const {
    LowRankHeader header;
    std::memcpy(&header, words.data(), sizeof(header));
    return header;
  }
};

LowRankShape ShapeOf(size_t n, size_t cols, uint32_t rank) {
  return {.n = n, .cols = cols, .rank = rank};
}

size_t VectorElems(const LowRankShape& shape) {
  return shape.rank * std::max(shape.cols, shape.rows());
}

// With random factors.
std::vector<float> RandomPayload(const LowRankShape& shape, LowRankSide side,
                                 uint64_t seed) {
  auto words = RandomFloats(LowRankBytes(shape) / 4, 0.4f, false, seed);
  const LowRankHeader header = {static_cast<uint16_t>(shape.rank), side, 0};
  std::memcpy(words.data(), &header, sizeof(header));
  return words;
}

uint8_t* BytesOf(const Array<float>& words) {
  return reinterpret_cast<uint8_t*>(words.get());
}

Payload Learn(const KernelTable& table, const LowRankShape& shape,
              const std::vector<float>& sum, size_t skew = 0) {
  const Array<float> from(table, sum, skew);
  const Array<float> to(table, std::vector<float>(sum.size(), 7), 2 * skew);
  const Array<double> vectors(table, std::vector<double>(VectorElems(shape)));
  table.low_rank.learn(BytesOf(from), shape, vectors.get(), BytesOf(to),
                       Stream{});
  Wait(table);
  return {to.values(), vectors.values()};
}

Payload RandomBasis(const KernelTable& table, const LowRankShape& shape,
                    const DrawKey& draw, size_t skew = 0) {
  const Array<float> to(table, std::vector<float>(LowRankBytes(shape) / 4, 7),
                        skew);
  const Array<double> vectors(table, std::vector<double>(VectorElems(shape)));
  table.low_rank.random(draw, shape, vectors.get(), BytesOf(to), Stream{});
  Wait(table);
  return {to.values(), vectors.values()};
}

void ExpectOrthonormal(const std::vector<double>& vectors, size_t size,
                       size_t count) {
  for (size_t a = 0; a < count; ++a) {
    for (size_t b = 0; b <= a; ++b) {
      double dot = 0;
      for (size_t i = 0; i < size; ++i) {
        dot += vectors[a * size + i] * vectors[b * size + i];
      }
      ASSERT_NEAR(dot, a == b ? 1 : 0, 1e-12) << a << " " << b;
    }
  }
}

TEST_P(LowRank, RandomBasesAreOrthonormalAndDependOnTheStep) {
  for (const uint32_t rank : {1u, 2u, 7u, 48u}) {
    const LowRankShape shape = ShapeOf(48 * 48, 48, rank);
    const Payload basis = RandomBasis(table(), shape, {.key = 1, .step = 2});
    EXPECT_EQ(basis.header().side, LowRankSide::kRight);
    EXPECT_EQ(basis.header().rank, rank);
    ExpectOrthonormal(basis.vectors, 48, rank);
    const Payload other = RandomBasis(table(), shape, {.key = 1, .step = 3});
    EXPECT_NE(basis.vectors, other.vectors);
  }
}

// Of base/random.h; only the length is ours.
TEST_P(LowRank, ARandomVectorIsThatOfTheSequence) {
  Random random(11, 5);
  std::vector<double> drawn(32);
  double square = 0;
  for (double& value : drawn) {
    value = random.NextUniform(-1, 1);
    square += value * value;
  }
  const Payload basis =
      RandomBasis(table(), ShapeOf(32, 32, 1), {.key = 11, .step = 5});
  for (size_t i = 0; i < drawn.size(); ++i) {
    EXPECT_FLOAT_EQ(basis.words[1 + i],
                    static_cast<float>(drawn[i] / std::sqrt(square)));
  }
}

// Equal, zero and nearly equal vectors give way to others.
TEST_P(LowRank, DependentVectorsBecomeABasisToo) {
  const LowRankShape shape = ShapeOf(64, 16, 4);
  auto sum = RandomPayload(shape, LowRankSide::kRight, 1);
  constexpr float kVectors[4][4] = {
      {3, 4, 0, 0}, {6, 8, 0, 0}, {0, 0, 0, 0}, {3, 4, 0, 1e-9f}};
  for (size_t k = 0; k < 4; ++k) {
    for (size_t i = 0; i < 4; ++i) sum[1 + 64 + 4 * i + k] = kVectors[k][i];
  }
  const Payload next = Learn(table(), shape, sum);
  EXPECT_EQ(next.header().side, LowRankSide::kLeft);
  EXPECT_DOUBLE_EQ(next.vectors[0], 0.6);
  EXPECT_DOUBLE_EQ(next.vectors[1], 0.8);
  EXPECT_EQ(next.words[1 + 64], 0.6f);
  EXPECT_EQ(next.words[1 + 64 + 4], 0.8f);
  ExpectOrthonormal(next.vectors, 4, 4);
}

// One vector longer than what is multiplied at once, and one dependent.
TEST_P(LowRank, BasesEqualTheReference) {
  for (const size_t cols : {16, 48, 320, 2064, 4112}) {
    for (const uint32_t rank : {1u, 2u, 3u, 9u}) {
      const LowRankShape shape = ShapeOf(9 * cols + 5, cols, rank);
      const size_t skew = 4 * (rank % 2);
      SCOPED_TRACE(::testing::Message() << "cols " << cols << " rank " << rank);
      for (const LowRankSide side : {LowRankSide::kRight, LowRankSide::kLeft}) {
        auto sum = RandomPayload(shape, side, cols + rank);
        if (side == LowRankSide::kLeft && rank == 3) {
          std::copy_n(sum.begin() + 1, cols, sum.begin() + 1 + 2 * cols);
        }
        const Payload want = Learn(ReferenceKernels(), shape, sum);
        const Payload got = Learn(table(), shape, sum, skew);
        ExpectSameBits(got.words, want.words);
        ASSERT_EQ(got.vectors, want.vectors);
      }
      const DrawKey draw = {.key = cols, .step = rank};
      ExpectSameBits(RandomBasis(table(), shape, draw, skew).words,
                     RandomBasis(ReferenceKernels(), shape, draw).words);
    }
  }
}

// By a payload's header: the other side's fit, and its elements counted.
TEST_P(LowRank, PayloadsAreFittedByTheirSide) {
  for (const size_t n : SizesToTry()) {
    if (n == 0) continue;
    const Problem problem = MakeProblem(
        n, n > 5000 ? 320 : 48, static_cast<uint32_t>(1 + n % 5), n % 3 == 0);
    const LowRankShape& shape = problem.shape;
    const size_t skew = 4 * (n % 2);
    for (const LowRankSide side : {LowRankSide::kRight, LowRankSide::kLeft}) {
      SCOPED_TRACE(::testing::Message()
                   << "n " << n << " side " << static_cast<int>(side));
      auto words = RandomPayload(shape, side, n);
      const LowRankFactor basis = FactorAt(shape, side);
      const auto& given =
          side == LowRankSide::kRight ? problem.right : problem.left;
      std::copy(given.begin(), given.end(), words.begin() + basis.first);
      Array<float> grad(table(), problem.grad, skew);
      Array<float> residual(table(), problem.residual, skew);
      Array<float> payload(table(), words, skew);
      Array<EncodeStats> stats(table(), {EncodeStats{}});
      table().low_rank.fit(grad.get(), residual.get(), shape, NonFinite::kZero,
                           BytesOf(payload), stats.get(), Stream{});
      Wait(table());
      const Fitted want = Fit(ReferenceKernels(), problem,
                              side == LowRankSide::kRight, NonFinite::kZero, 0);
      const LowRankFactor fitted = FactorAt(shape, OtherSide(side));
      ASSERT_EQ(fitted.count, want.factor.size());
      std::copy(want.factor.begin(), want.factor.end(),
                words.begin() + fitted.first);
      ExpectSameBits(payload.values(), words);
      ExpectSameBits(residual.values(), want.residual);
      const auto zeros =
          std::count(want.factor.begin(), want.factor.end(), 0.0f);
      ASSERT_EQ(stats.values()[0].num_nonzero,
                want.factor.size() - static_cast<size_t>(zeros));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(LowRank, OnlyTheFittedFactorsAreAdded) {
  for (const size_t n : {1, 17, 1000, 100003}) {
    const LowRankShape shape = ShapeOf(n, n > 5000 ? 320 : 48, 3);
    for (const LowRankSide side : {LowRankSide::kRight, LowRankSide::kLeft}) {
      const auto one = RandomPayload(shape, side, n);
      auto want = RandomPayload(shape, side, n + 1);
      const Array<float> payload(table(), one, 4);
      const Array<float> sum(table(), want, 4);
      table().low_rank.add_fitted(BytesOf(payload), shape, BytesOf(sum),
                                  Stream{});
      Wait(table());
      const LowRankFactor fitted = FactorAt(shape, OtherSide(side));
      for (size_t i = 0; i < fitted.count; ++i) {
        want[fitted.first + i] += one[fitted.first + i];
      }
      ExpectSameBits(sum.values(), want);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tables, LowRank, ::testing::ValuesIn(Tables()),
                         NameOf);

}  // namespace
}  // namespace telegrad::kernels::testing
