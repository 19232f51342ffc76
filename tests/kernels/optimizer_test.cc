#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/frozen_adam.h"
#include "kernels/normal_adam.h"
#include "tests/kernels/kernel_test.h"

// Steps of optimizers: the rule by hand, and the same bits everywhere.
namespace telegrad::kernels::testing {
namespace {

class OptimizerTest : public KernelTest {};

constexpr SgdParameters kNesterov[] = {
    {.learning_rate = 0.1f},
    {.learning_rate = 0.1f,
     .momentum_rate = 0.9f,
     .weight_decay = 1e-4f,
     .rescale = 0.3f},
    {.learning_rate = 1e38f, .momentum_rate = 2.0f, .rescale = 1e30f}};

constexpr AdamStep kAdam[] = {
    {},
    {.rescale = 0.3f, .weight_decay = 0.01f, .root = 0.03f},
    {.keep = 0.999f, .beta1 = 0.5f, .rest1 = 0.5f, .epsilon = 0},
    {.rescale = 1e30f, .step_size = 1e30f}};

constexpr SquareStep kSquare[] = {
    {},
    {.rescale = 0.3f, .weight_decay = 0.01f, .keep = 0.99f, .rest = 0.01f},
    {.epsilon = 0},
    {.rescale = 1e30f, .learning_rate = 1e30f}};

// By hand: d = 1/2 * (2 * g + w / 4); m = m / 2 - d; w = w + m / 2 - d.
TEST_P(OptimizerTest, NesterovOfKnownNumbers) {
  Array<float> grad(table(), {1, -1, 0});
  Array<float> weight(table(), {4, 4, 4});
  Array<float> momentum(table(), {2, 2, 2});
  table().optimizer.nesterov(grad.get(), 3,
                             {.learning_rate = 0.5f,
                              .momentum_rate = 0.5f,
                              .weight_decay = 0.25f,
                              .rescale = 2.0f},
                             weight.get(), momentum.get(), Stream{});
  Wait(table());
  EXPECT_THAT(momentum.values(), ::testing::ElementsAre(-0.5f, 1.5f, 0.5f));
  EXPECT_THAT(weight.values(), ::testing::ElementsAre(2.25f, 5.25f, 3.75f));
}

// By hand: w = w / 2; m = m / 2 + g / 2; v = 3/4 v + g^2 / 4;
// w = w - 2 * (m / (sqrt(v) / (1/2) + 1)).
TEST_P(OptimizerTest, AdamOfKnownNumbers) {
  Array<float> grad(table(), {4, -4, 0});
  Array<float> weight(table(), {8, 8, 8});
  Array<float> mean(table(), {2, 2, 9});
  Array<float> square(table(), {0, 0, 12});
  table().optimizer.adam(grad.get(), 3,
                         {.keep = 0.5f,
                          .beta1 = 0.5f,
                          .rest1 = 0.5f,
                          .beta2 = 0.75f,
                          .rest2 = 0.25f,
                          .step_size = 2.0f,
                          .root = 0.5f,
                          .epsilon = 1.0f},
                         weight.get(), mean.get(), square.get(), Stream{});
  Wait(table());
  EXPECT_THAT(mean.values(), ::testing::ElementsAre(3, -1, 4.5f));
  EXPECT_THAT(square.values(), ::testing::ElementsAre(4, 4, 9));
  EXPECT_THAT(weight.values(),
              ::testing::ElementsAre(4.0f - 2.0f * (3.0f / 5.0f),
                                     4.0f - 2.0f * (-1.0f / 5.0f),
                                     4.0f - 2.0f * (4.5f / 7.0f)));
}

// By hand: g = 2 * x + w / 4; v = 3/4 v + g^2 / 4; w = w - 2 * g / (sqrt(v) +
// 1).
TEST_P(OptimizerTest, SquareOfKnownNumbers) {
  Array<float> grad(table(), {1, -3, -1});
  Array<float> weight(table(), {8, 8, 8});
  Array<float> square(table(), {0, 0, 12});
  table().optimizer.square(grad.get(), 3,
                           {.rescale = 2.0f,
                            .weight_decay = 0.25f,
                            .learning_rate = 2.0f,
                            .keep = 0.75f,
                            .rest = 0.25f,
                            .epsilon = 1.0f},
                           weight.get(), square.get(), Stream{});
  Wait(table());
  EXPECT_THAT(square.values(), ::testing::ElementsAre(4, 4, 9));
  EXPECT_THAT(weight.values(),
              ::testing::ElementsAre(8.0f - 2.0f * (4.0f / 3.0f),
                                     8.0f - 2.0f * (-4.0f / 3.0f), 8));
}

struct State {
  std::vector<float> weight;
  std::vector<float> first;
  std::vector<float> second;
};

State RandomState(size_t n) {
  State state = {RandomFloats(n, 1.0f, true, n + 1),
                 RandomFloats(n, 1.0f, true, n + 2),
                 RandomFloats(n, 1.0f, true, n + 3)};
  for (float& x : state.second) x = std::fabs(x);  // squares
  return state;
}

// Each array off its vectors' boundaries by `skew` bytes times its place.
template <typename Step>
State After(const KernelTable& by, size_t n, size_t skew, Step step) {
  const State from = RandomState(n);
  Array<float> grad(by, RandomFloats(n, 1.0f, true, n + 4));
  Array<float> weight(by, from.weight, skew);
  Array<float> first(by, from.first, 2 * skew);
  Array<float> second(by, from.second, 3 * skew);
  step(by, grad.get(), weight.get(), first.get(), second.get());
  Wait(by);
  return {weight.values(), first.values(), second.values()};
}

template <typename Step>
void ExpectSameEverywhere(const KernelTable& table, Step step) {
  for (const size_t n : SizesToTry()) {
    const auto sized = [&](const KernelTable& by, const float* g, float* w,
                           float* a, float* b) { step(by, g, n, w, a, b); };
    SCOPED_TRACE(::testing::Message() << "n " << n);
    const State want = After(ReferenceKernels(), n, 0, sized);
    for (const size_t skew : {size_t{0}, size_t{4}}) {
      const State got = After(table, n, skew, sized);
      ExpectSameBits(got.weight, want.weight);
      ExpectSameBits(got.first, want.first);
      ExpectSameBits(got.second, want.second);
      if (::testing::Test::HasFailure()) return;
    }
  }
}

TEST_P(OptimizerTest, NesterovIsTheReferences) {
  for (const SgdParameters& params : kNesterov) {
    ExpectSameEverywhere(table(), [&](const KernelTable& by, const float* g,
                                      size_t n, float* w, float* m, float*) {
      by.optimizer.nesterov(g, n, params, w, m, Stream{});
    });
  }
}

// By hand: m = m / 2 + g; pushed is g + m / 2, or m. Where that is not finite
// the momentum shrinks as if the gradient were 0.
TEST_P(OptimizerTest, PushedMomentumOfKnownNumbers) {
  const float infinity = std::numeric_limits<float>::infinity();
  const Array<float> grad(table(), {1, -1, infinity});
  for (const bool leads : {false, true}) {
    Array<float> momentum(table(), {2, 4, 8});
    Array<float> out(table(), {9, 9, 9});
    table().optimizer.push_momentum(grad.get(), 3, 0.5f, leads, momentum.get(),
                                    out.get(), Stream{});
    Wait(table());
    EXPECT_THAT(momentum.values(), ::testing::ElementsAre(2, 1, 4));
    EXPECT_THAT(out.values(),
                ::testing::ElementsAre(2, leads ? -0.5f : 1.0f, infinity));
  }
}

TEST_P(OptimizerTest, PushedMomentumIsTheReferences) {
  for (const bool leads : {false, true}) {
    ExpectSameEverywhere(table(), [&](const KernelTable& by, const float* g,
                                      size_t n, float* out, float* m, float*) {
      by.optimizer.push_momentum(g, n, 0.9f, leads, m, out, Stream{});
      by.optimizer.push_momentum(out, n, 0.9f, leads, m, out, Stream{});
    });
  }
}

TEST_P(OptimizerTest, AdamIsTheReferences) {
  for (const AdamStep& step : kAdam) {
    ExpectSameEverywhere(table(), [&](const KernelTable& by, const float* g,
                                      size_t n, float* w, float* m, float* v) {
      by.optimizer.adam(g, n, step, w, m, v, Stream{});
    });
  }
}

// By hand: g = m / 2 + (g + w / 4) / 2; then with 2 * g for the sum m = g,
// w = w / 2 - 2 * (m / (sqrt(v) / (1/2) + 1)).
TEST_P(OptimizerTest, FrozenAdamOfKnownNumbers) {
  const FrozenAdamKernels& frozen = FrozenAdamKernelsOf(table().device);
  const AdamStep step = {.rescale = 0.5f,
                         .weight_decay = 0.25f,
                         .keep = 0.5f,
                         .beta1 = 0.5f,
                         .rest1 = 0.5f,
                         .step_size = 2.0f,
                         .root = 0.5f,
                         .epsilon = 1.0f};
  Array<float> grad(table(), {4, -4, 0});
  Array<float> weight(table(), {8, 8, 8});
  Array<float> mean(table(), {2, 2, 8});
  const Array<float> square(table(), {0, 4, 9});
  frozen.to_mean(mean.get(), weight.get(), 3, step, grad.get(), Stream{});
  Wait(table());
  EXPECT_THAT(grad.values(), ::testing::ElementsAre(4, 0, 5));
  frozen.step_by_mean(grad.get(), square.get(), 3, step, weight.get(),
                      mean.get(), Stream{});
  Wait(table());
  EXPECT_THAT(mean.values(), ::testing::ElementsAre(2, 0, 2.5f));
  EXPECT_THAT(weight.values(),
              ::testing::ElementsAre(0, 4, 4.0f - 2.0f * (2.5f / 7.0f)));
}

TEST_P(OptimizerTest, FrozenAdamIsTheReferences) {
  for (const AdamStep& step : kAdam) {
    ExpectSameEverywhere(table(), [&](const KernelTable& by, const float* g,
                                      size_t n, float* w, float* m, float* v) {
      FrozenAdamKernelsOf(by.device).to_mean(g, w, n, step, m, Stream{});
      FrozenAdamKernelsOf(by.device).step_by_mean(g, v, n, step, w, m,
                                                  Stream{});
    });
    ExpectSameEverywhere(table(), [&](const KernelTable& by, const float* g,
                                      size_t n, float* w, float* m, float*) {
      FrozenAdamKernelsOf(by.device).to_mean(g, w, n, step, m, Stream{});
    });
  }
}

// By hand: the mean of squares is 3, so that s = sqrt((v + 3) / 3) is 1, 1, 2;
// then g = s * sum / 2, m = g / 2, v = v / 2 + g * g / 2 and
// w = w - (2 * m + g) / (sqrt(v) + 1).
TEST_P(OptimizerTest, NormalAdamOfKnownNumbers) {
  const NormalAdamKernels& normal = NormalAdamKernelsOf(table().device);
  const NormalStep size = {.floor = 1, .mean_rate = 2, .grad_rate = 1};
  const AdamStep step = {.rescale = 0.5f,
                         .beta1 = 0.5f,
                         .rest1 = 0.5f,
                         .beta2 = 0.5f,
                         .rest2 = 0.5f,
                         .epsilon = 1};
  Array<float> square(table(), {0, 0, 9});
  Array<float> grad(table(), {4, -4, 4});
  normal.to_normal(square.get(), 3, size, grad.get(), Stream{});
  Wait(table());
  EXPECT_THAT(grad.values(), ::testing::ElementsAre(4, -4, 2));
  Array<float> weight(table(), {8, 8, 8});
  Array<float> mean(table(), {0, 0, 0});
  normal.step_by_normal(grad.get(), 3, step, size, weight.get(), mean.get(),
                        square.get(), Stream{});
  Wait(table());
  EXPECT_THAT(mean.values(), ::testing::ElementsAre(1, -1, 1));
  EXPECT_THAT(square.values(), ::testing::ElementsAre(2, 2, 6.5f));
  const float below = std::sqrt(2.0f) + 1;
  EXPECT_THAT(weight.values(),
              ::testing::ElementsAre(8 - 4 / below, 8 + 4 / below,
                                     8 - 4 / (std::sqrt(6.5f) + 1)));
}

// A block's mean is its own; where it is 0, gradients stay as they are.
TEST_P(OptimizerTest, NormalBlocksEndWhereTheyEnd) {
  const NormalAdamKernels& normal = NormalAdamKernelsOf(table().device);
  std::vector<float> squares(kNormalBlock, 0.0f);
  squares.resize(2 * kNormalBlock + 3, 8.0f);
  const Array<float> square(table(), squares);
  Array<float> grad(table(), std::vector<float>(squares.size(), 8.0f));
  normal.to_normal(square.get(), squares.size(), {.floor = 3}, grad.get(),
                   Stream{});
  Wait(table());
  const std::vector<float> got = grad.values();
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i], i < kNormalBlock ? 8.0f : 4.0f) << i;
  }
}

TEST_P(OptimizerTest, NormalAdamIsTheReferences) {
  for (const AdamStep& step : kAdam) {
    for (const NormalStep& size :
         {NormalStep{.mean_rate = 0.01f, .grad_rate = 0.001f},
          NormalStep{.floor = 1}}) {
      ExpectSameEverywhere(
          table(), [&](const KernelTable& by, const float* g, size_t n,
                       float* w, float* m, float* v) {
            const NormalAdamKernels& normal = NormalAdamKernelsOf(by.device);
            normal.to_normal(v, n, size, m, Stream{});
            normal.step_by_normal(g, n, step, size, w, m, v, Stream{});
          });
    }
  }
}

TEST_P(OptimizerTest, SquareIsTheReferences) {
  for (const SquareStep& step : kSquare) {
    ExpectSameEverywhere(table(), [&](const KernelTable& by, const float* g,
                                      size_t n, float* w, float*, float* v) {
      by.optimizer.square(g, n, step, w, v, Stream{});
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, OptimizerTest, ::testing::ValuesIn(Tables()),
                         NameOf);

}  // namespace
}  // namespace telegrad::kernels::testing
