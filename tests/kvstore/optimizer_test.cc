#include "kvstore/optimizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kvstore/engine/codec/checks.h"
#include "tests/testing/same_bits.h"
#include "tests/testing/status_matchers.h"

namespace telegrad {
namespace {

using testing::SameBits;
using testing::StatusIs;

constexpr OptimizerKind kKinds[] = {
    OptimizerKind::kSgd,   OptimizerKind::kNag,     OptimizerKind::kAdam,
    OptimizerKind::kAdamW, OptimizerKind::kAdagrad, OptimizerKind::kRmsProp};
constexpr int kSteps = 25;

float Gradient(int step, size_t i) {
  return static_cast<float>(
      std::sin(0.7 * step + 1.3 * static_cast<double>(i)));
}

OptimizerConfig Config(OptimizerKind kind) {
  return {.kind = kind,
          .sgd = {.learning_rate = 0.05f,
                  .momentum_rate = 0.9f,
                  .weight_decay = 0.02f,
                  .rescale = 0.5f},
          .adam = {.beta1 = 0.8f, .beta2 = 0.95f, .epsilon = 1e-6f}};
}

// The pseudo-code of torch.optim.SGD, Adam, AdamW, Adagrad and RMSprop (PyTorch
// 2.x), of one weight, in double; `g` with the rescaling.
struct PyTorch {
  double w = 0;
  double buf = 0, m = 0, v = 0;
  int t = 0;

  void Step(const OptimizerConfig& c, double g) {
    const double lr = static_cast<double>(c.sgd.learning_rate);
    const double mu = static_cast<double>(c.sgd.momentum_rate);
    const double wd = static_cast<double>(c.sgd.weight_decay);
    const double b1 = static_cast<double>(c.adam.beta1);
    const double b2 = static_cast<double>(c.adam.beta2);
    const double eps = static_cast<double>(c.adam.epsilon);
    ++t;
    if (c.kind == OptimizerKind::kAdamW) w = w - lr * wd * w;
    if (c.kind != OptimizerKind::kAdamW) g = g + wd * w;
    if (c.kind == OptimizerKind::kSgd || c.kind == OptimizerKind::kNag) {
      buf = t > 1 ? mu * buf + g : g;
      w = w - lr * (c.kind == OptimizerKind::kNag ? g + mu * buf : buf);
      return;
    }
    if (c.kind == OptimizerKind::kAdagrad ||
        c.kind == OptimizerKind::kRmsProp) {
      const bool is_sum = c.kind == OptimizerKind::kAdagrad;
      v = is_sum ? v + g * g : b2 * v + (1 - b2) * g * g;
      w = w - lr * g / (std::sqrt(v) + eps);
      return;
    }
    m = b1 * m + (1 - b1) * g;
    v = b2 * v + (1 - b2) * g * g;
    const double m_hat = m / (1 - std::pow(b1, t));
    const double v_hat = v / (1 - std::pow(b2, t));
    w = w - lr * m_hat / (std::sqrt(v_hat) + eps);
  }
};

// 25 steps of some 10 roundings each of values below 4: 250 * 4 * 2^-24.
TEST(Optimizer, IsPyTorchs) {
  constexpr double kTolerance = 250 * 4 * 6e-8;
  for (const OptimizerKind kind : kKinds) {
    const OptimizerConfig config = Config(kind);
    constexpr size_t kCount = 100;
    std::vector<float> weights(kCount);
    std::vector<PyTorch> torch(kCount);
    for (size_t i = 0; i < kCount; ++i) {
      weights[i] = 0.03f * static_cast<float>(i) - 1;
      torch[i].w = static_cast<double>(weights[i]);
    }
    OptimizerState state;
    for (int step = 0; step < kSteps; ++step) {
      std::vector<float> grad(kCount);
      for (size_t i = 0; i < kCount; ++i) {
        grad[i] = Gradient(step, i);
        torch[i].Step(config, 0.5 * static_cast<double>(grad[i]));
      }
      state.Step(config, {}, grad.data(), kCount, weights.data(), {});
    }
    for (size_t i = 0; i < kCount; ++i) {
      ASSERT_NEAR(static_cast<double>(weights[i]), torch[i].w, kTolerance)
          << ToString(kind) << " " << i;
    }
  }
}

// The first step by hand: the mean over its root is the gradient's sign, so
// each weight moves by the rate; AdamW takes rate * decay of it before.
TEST(Optimizer, FirstStepOfAdamIsTheRate) {
  for (const OptimizerKind kind :
       {OptimizerKind::kAdam, OptimizerKind::kAdamW}) {
    OptimizerConfig config = Config(kind);
    config.sgd = {.learning_rate = 0.25f, .weight_decay = 0.5f};
    config.adam.epsilon = 0;
    std::vector<float> weights = {8, 8};
    const std::vector<float> grad = {3, -300};
    OptimizerState().Step(config, {}, grad.data(), 2, weights.data(), {});
    const float kept = kind == OptimizerKind::kAdamW ? 7.0f : 8.0f;
    EXPECT_NEAR(weights[0], kept - 0.25f, 1e-5f);
    EXPECT_NEAR(weights[1], kept + 0.25f, 1e-5f);
  }
}

TEST(Optimizer, OfPartsIsThatOfTheWhole) {
  constexpr size_t kCount = 1000;
  for (const OptimizerKind kind : kKinds) {
    std::vector<float> whole(kCount, 1);
    std::vector<float> parts(kCount, 1);
    OptimizerState of_whole;
    OptimizerState of_part[3];
    const size_t borders[] = {0, 32, 801, kCount};
    for (int step = 0; step < kSteps; ++step) {
      std::vector<float> grad(kCount);
      for (size_t i = 0; i < kCount; ++i) grad[i] = Gradient(step, i);
      const RateMultipliers own = {.lr = 0.3f, .wd = 2};
      of_whole.Step(Config(kind), own, grad.data(), kCount, whole.data(), {});
      for (size_t p = 0; p < 3; ++p) {
        const size_t at = borders[p];
        of_part[p].Step(Config(kind), own, grad.data() + at,
                        borders[p + 1] - at, parts.data() + at, {});
      }
    }
    for (size_t i = 0; i < kCount; ++i) {
      ASSERT_TRUE(SameBits(whole[i], parts[i])) << ToString(kind) << " " << i;
    }
  }
}

TEST(Optimizer, MultipliersScaleRateAndDecay) {
  for (const OptimizerKind kind : kKinds) {
    OptimizerConfig scaled = Config(kind);
    scaled.sgd.learning_rate *= 0.5f;
    scaled.sgd.weight_decay *= 4;
    float a = 1;
    float b = 1;
    const float grad = 0.3f;
    OptimizerState().Step(Config(kind), {.lr = 0.5f, .wd = 4}, &grad, 1, &a,
                          {});
    OptimizerState().Step(scaled, {}, &grad, 1, &b, {});
    EXPECT_TRUE(SameBits(a, b)) << ToString(kind);
    EXPECT_NE(a, 1);
  }
}

TEST(Optimizer, RefusesNumbersThatCannotBe) {
  const auto invalid = absl::StatusCode::kInvalidArgument;
  const float inf = std::numeric_limits<float>::infinity();
  OptimizerConfig config;
  EXPECT_TRUE(CheckOptimizer(config).ok());
  config.adam.beta1 = 1;
  EXPECT_THAT(CheckOptimizer(config), StatusIs(invalid, "beta of 1"));
  config.adam = {.beta2 = -0.1f};
  EXPECT_THAT(CheckOptimizer(config), StatusIs(invalid, "beta of -0.1"));
  config.adam = {.epsilon = -1};
  EXPECT_THAT(CheckOptimizer(config), StatusIs(invalid, "epsilon"));
  config.adam = {};
  config.sgd.learning_rate = inf;
  EXPECT_THAT(CheckOptimizer(config), StatusIs(invalid, "rate of inf"));
  std::vector<TensorSpec> tensors = {
      {.name = "a", .num_elems = 3, .rates = {.lr = -1}}};
  EXPECT_THAT(CheckTensors(tensors), StatusIs(invalid, "multiplier of -1"));
}

TEST(Optimizer, NamesAreThoseOfTheCommandLine) {
  for (const OptimizerKind kind : kKinds) {
    EXPECT_EQ(*ParseOptimizerKind(ToString(kind)), kind);
  }
  EXPECT_THAT(ParseOptimizerKind("adadelta"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "sgd, nag, adam, adamw, adagrad, rmsprop"));
}

// Two workers' halves, against the rule in double: after 10 steps the mean of
// squares and its correction stay, the mean goes on as Adam's.
TEST(OptimizerState, GoesOnWithTheMeanAloneWhereItIsFrozen) {
  constexpr int kFrozenAfter = 10;
  for (const OptimizerKind kind :
       {OptimizerKind::kAdam, OptimizerKind::kAdamW}) {
    const OptimizerConfig c = Config(kind);
    const RateMultipliers own{.lr = 2, .wd = 3};
    const double lr = static_cast<double>(c.sgd.learning_rate * own.lr);
    const double wd = static_cast<double>(c.sgd.weight_decay * own.wd);
    const double b1 = static_cast<double>(c.adam.beta1);
    const double b2 = static_cast<double>(c.adam.beta2);
    const double eps = static_cast<double>(c.adam.epsilon);
    double w = 1.5, m = 0, v = 0;
    OptimizerState state;
    float weight = 1.5f;
    for (int t = 1; t <= kSteps; ++t) {
      float grads[] = {Gradient(t, 0), Gradient(t, 1)};
      double g = 0.5 * (double{grads[0]} + double{grads[1]});
      if (kind == OptimizerKind::kAdam) g += wd * w;
      if (kind == OptimizerKind::kAdamW) w *= 1 - lr * wd;
      m = b1 * m + (1 - b1) * g;
      if (t <= kFrozenAfter) v = b2 * v + (1 - b2) * g * g;
      const double root = std::sqrt(1 - std::pow(b2, std::min(t, 10)));
      w -= lr / (1 - std::pow(b1, t)) * m / (std::sqrt(v) / root + eps);
      if (t > kFrozenAfter) {
        for (float& each : grads) state.ToMean(c, own, &weight, 1, &each, {});
      }
      const float sum = grads[0] + grads[1];
      if (t > kFrozenAfter) {
        state.StepByMean(c, own, kFrozenAfter, &sum, 1, &weight, {});
      } else {
        state.Step(c, own, &sum, 1, &weight, {});
      }
      EXPECT_NEAR(static_cast<double>(weight), w, 1e-5) << t;
    }
    EXPECT_EQ(state.num_steps(), uint64_t{kSteps});
  }
}

// The rule of ToNormal and StepByNormal in double, of one array.
struct NormalRule {
  std::vector<double> w, m, v;
  int t = 0;  // steps

  // What a gradient's element i is divided by.
  double SizeOf(size_t i) const {
    const size_t begin = i / 256 * 256;
    const size_t end = std::min(v.size(), begin + 256);
    double mean = 0;
    for (size_t j = begin; j < end; ++j) mean += v[j];
    mean /= static_cast<double>(end - begin);
    return t == 0 ? 1 : std::sqrt(v[i] / mean + std::max(0.02, 1.0 / (t + 1)));
  }

  // NAdam's step of AdamW by the mean gradient.
  void Step(const OptimizerConfig& c, const std::vector<double>& g) {
    const double lr = static_cast<double>(c.sgd.learning_rate);
    const double wd = static_cast<double>(c.sgd.weight_decay);
    const double b1 = static_cast<double>(c.adam.beta1);
    const double b2 = static_cast<double>(c.adam.beta2);
    ++t;
    for (size_t i = 0; i < w.size(); ++i) {
      m[i] = b1 * m[i] + (1 - b1) * g[i];
      v[i] = b2 * v[i] + (1 - b2) * g[i] * g[i];
      const double ahead =
          (b1 * m[i] + (1 - b1) * g[i]) / (1 - std::pow(b1, t + 1));
      w[i] -= lr * wd * w[i] + lr * ahead /
                                   (std::sqrt(v[i] / (1 - std::pow(b2, t))) +
                                    static_cast<double>(c.adam.epsilon));
    }
  }
};

// Two workers' gradients: what codecs get, and, where none is between, a step
// by their mean.
TEST(OptimizerState, StepsByNormalGradientsAsNAdam) {
  constexpr size_t kElems = 300;  // a block and a part of one
  const OptimizerConfig c = Config(OptimizerKind::kAdamW);
  const std::vector<double> none(kElems);
  NormalRule rule{.w = std::vector<double>(kElems, 1.5), .m = none, .v = none};
  std::vector<float> weight(kElems, 1.5f);
  OptimizerState state;
  state.Restore(0, 0, Buffer(4 * kElems));
  state.Restore(0, 1, Buffer(4 * kElems));
  for (int t = 1; t <= kSteps; ++t) {
    std::vector<float> sum(kElems);
    std::vector<double> mean(kElems);
    for (const size_t worker : {size_t{0}, size_t{1}}) {
      std::vector<float> grad(kElems);
      for (size_t i = 0; i < kElems; ++i) {
        grad[i] = static_cast<float>(i % 7) * Gradient(t, i + worker);
        mean[i] += 0.5 * static_cast<double>(grad[i]);
      }
      const std::vector<float> raw = grad;
      state.ToNormal(c, kElems, grad.data(), {});
      for (size_t i = 0; i < kElems; ++i) {
        ASSERT_NEAR(static_cast<double>(grad[i]) * rule.SizeOf(i),
                    static_cast<double>(raw[i]), 1e-5);
        sum[i] += grad[i];
      }
    }
    state.StepByNormal(c, {}, sum.data(), kElems, weight.data(), {});
    rule.Step(c, mean);
    for (size_t i = 0; i < kElems; ++i) {
      ASSERT_NEAR(static_cast<double>(weight[i]), rule.w[i], 1e-4) << t;
    }
  }
  EXPECT_EQ(state.num_steps(), uint64_t{kSteps});
}

}  // namespace
}  // namespace telegrad
