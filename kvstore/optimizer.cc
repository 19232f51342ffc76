#include "kvstore/optimizer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/device_access.h"
#include "kernels/frozen_adam.h"
#include "kernels/normal_adam.h"

namespace telegrad {
namespace {

bool IsAdam(OptimizerKind kind) {
  return kind == OptimizerKind::kAdam || kind == OptimizerKind::kAdamW;
}

// base^exponent by squaring: the same bits with every library.
double Power(double base, uint64_t exponent) {
  double result = 1;
  for (; exponent > 0; exponent /= 2, base *= base) {
    if (exponent % 2 == 1) result *= base;
  }
  return result;
}

kernels::AdamStep MakeAdamStep(const OptimizerConfig& config,
                               const RateMultipliers& own, uint64_t step) {
  const double beta1 = config.adam.beta1;
  const double beta2 = config.adam.beta2;
  const double rate = static_cast<double>(config.sgd.learning_rate) *
                      static_cast<double>(own.lr);
  const double decay = static_cast<double>(config.sgd.weight_decay) *
                       static_cast<double>(own.wd);
  const bool is_decoupled = config.kind == OptimizerKind::kAdamW;
  return {
      .rescale = config.sgd.rescale,
      .weight_decay = is_decoupled ? 0.0f : static_cast<float>(decay),
      .keep = is_decoupled ? static_cast<float>(1 - rate * decay) : 1.0f,
      .beta1 = config.adam.beta1,
      .rest1 = static_cast<float>(1 - beta1),
      .beta2 = config.adam.beta2,
      .rest2 = static_cast<float>(1 - beta2),
      .step_size = static_cast<float>(rate / (1 - Power(beta1, step))),
      .root = static_cast<float>(std::sqrt(1 - Power(beta2, step))),
      .epsilon = config.adam.epsilon,
  };
}

// What a few steps have seen of an element says less than its neighbours do.
constexpr double kLeastFloor = 0.02;

// After `steps` steps.
kernels::NormalStep MakeNormalStep(const OptimizerConfig& config,
                                   const RateMultipliers& own, uint64_t steps) {
  const double beta1 = config.adam.beta1;
  const double rate = static_cast<double>(config.sgd.learning_rate) *
                      static_cast<double>(own.lr) /
                      (1 - Power(beta1, steps + 2));
  return {.floor = static_cast<float>(
              std::max(kLeastFloor, 1 / (static_cast<double>(steps) + 1))),
          .mean_rate = static_cast<float>(rate * beta1),
          .grad_rate = static_cast<float>(rate * (1 - beta1))};
}

float* Reached(const Buffer& array) {
  return reinterpret_cast<float*>(Reach(array.view()).data);
}

bool KeepsSquaresAlone(OptimizerKind kind) {
  return kind == OptimizerKind::kAdagrad || kind == OptimizerKind::kRmsProp;
}

kernels::SquareStep MakeSquareStep(const OptimizerConfig& config,
                                   const RateMultipliers& own) {
  const bool is_sum = config.kind == OptimizerKind::kAdagrad;
  return {
      .rescale = config.sgd.rescale,
      .weight_decay = config.sgd.weight_decay * own.wd,
      .learning_rate = config.sgd.learning_rate * own.lr,
      .keep = is_sum ? 1.0f : config.adam.beta2,
      .rest = is_sum ? 1.0f : static_cast<float>(1 - double{config.adam.beta2}),
      .epsilon = config.adam.epsilon};
}

}  // namespace

void OptimizerState::Step(const OptimizerConfig& config,
                          const RateMultipliers& own, const float* grad,
                          size_t n, float* weight, Stream stream,
                          const kernels::KernelTable& kernels) {
  const auto prepared = [&](Buffer& state) {
    if (state.size() == 0) {
      state = kernels.make_buffer(4 * n, kernels.ordinal, stream);
    }
    return Reached(state);
  };
  float* const first = prepared(first_);
  ++num_steps_;
  if (IsAdam(config.kind)) {
    kernels.optimizer.adam(grad, n, MakeAdamStep(config, own, num_steps_),
                           weight, first, prepared(second_), stream);
    return;
  }
  if (KeepsSquaresAlone(config.kind)) {
    kernels.optimizer.square(grad, n, MakeSquareStep(config, own), weight,
                             first, stream);
    return;
  }
  const kernels::SgdParameters sgd = {
      .learning_rate = config.sgd.learning_rate * own.lr,
      .momentum_rate = config.sgd.momentum_rate,
      .weight_decay = config.sgd.weight_decay * own.wd,
      .rescale = config.sgd.rescale};
  auto* const step = config.kind == OptimizerKind::kNag
                         ? kernels.optimizer.nesterov
                         : kernels.sgd_momentum;
  step(grad, n, sgd, weight, first, stream);
}

void OptimizerState::ToMean(const OptimizerConfig& config,
                            const RateMultipliers& own, const float* weight,
                            size_t n, float* grad, Stream stream,
                            DeviceKind device) const {
  kernels::FrozenAdamKernelsOf(device).to_mean(
      Reached(first_), weight, n, MakeAdamStep(config, own, num_steps_ + 1),
      grad, stream);
}

void OptimizerState::StepByMean(const OptimizerConfig& config,
                                const RateMultipliers& own,
                                uint64_t frozen_after, const float* sum,
                                size_t n, float* weight, Stream stream,
                                DeviceKind device) {
  ++num_steps_;
  kernels::AdamStep step = MakeAdamStep(config, own, num_steps_);
  step.root = MakeAdamStep(config, own, frozen_after).root;
  kernels::FrozenAdamKernelsOf(device).step_by_mean(
      sum, Reached(second_), n, step, weight, Reached(first_), stream);
}

void OptimizerState::ToNormal(const OptimizerConfig& config, size_t n,
                              float* grad, Stream stream,
                              DeviceKind device) const {
  kernels::NormalAdamKernelsOf(device).to_normal(
      Reached(second_), n, MakeNormalStep(config, {}, num_steps_), grad,
      stream);
}

void OptimizerState::StepByNormal(const OptimizerConfig& config,
                                  const RateMultipliers& own, const float* sum,
                                  size_t n, float* weight, Stream stream,
                                  DeviceKind device) {
  const kernels::NormalStep normal = MakeNormalStep(config, own, num_steps_);
  ++num_steps_;
  kernels::NormalAdamKernelsOf(device).step_by_normal(
      sum, n, MakeAdamStep(config, own, num_steps_), normal, weight,
      Reached(first_), Reached(second_), stream);
}

Bytes OptimizerState::CountStep() {
  ++num_steps_;
  return first_.view();
}

std::vector<ConstBytes> OptimizerState::arrays() const {
  std::vector<ConstBytes> arrays;
  if (num_steps_ == 0) return arrays;
  if (first_.size() > 0) arrays.push_back(first_.view());
  if (second_.size() > 0) arrays.push_back(second_.view());
  return arrays;
}

void OptimizerState::Restore(uint64_t num_steps, size_t index, Buffer array) {
  num_steps_ = num_steps;
  (index == 0 ? first_ : second_) = std::move(array);
}

absl::Status CheckOptimizer(const OptimizerConfig& config) {
  if (!std::isfinite(config.result_scale)) {
    return absl::InvalidArgumentError(
        absl::StrCat("results multiplied by ", config.result_scale));
  }
  if (config.update_on == UpdateOn::kServer && config.result_scale != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("results multiplied by ", config.result_scale,
                     " of a store with an optimizer: these are weights; the "
                     "optimizer's rescale multiplies gradients"));
  }
  for (const float rate : {config.sgd.learning_rate, config.sgd.momentum_rate,
                           config.sgd.weight_decay, config.sgd.rescale}) {
    if (!std::isfinite(rate)) {
      return absl::InvalidArgumentError(
          absl::StrCat("optimizer with a rate of ", rate));
    }
  }
  for (const float beta : {config.adam.beta1, config.adam.beta2}) {
    if (beta >= 0 && beta < 1) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "optimizer with a beta of ", beta, ": 0 to 1, 1 excluded"));
  }
  if (!std::isfinite(config.adam.epsilon) || config.adam.epsilon < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("optimizer with an epsilon of ", config.adam.epsilon));
  }
  return absl::OkStatus();
}

absl::Status CheckOptimizerChange(const OptimizerConfig& now,
                                  const OptimizerConfig& next) {
  if (next.result_scale != now.result_scale) {
    return absl::FailedPreconditionError(absl::StrCat(
        "SetOptimizer after Init: results are multiplied by ", now.result_scale,
        ", and not by ", next.result_scale, " from now on"));
  }
  if (next.update_on != now.update_on || next.kind != now.kind) {
    return absl::FailedPreconditionError(absl::StrCat(
        "SetOptimizer to ", ToString(next.kind), " on ",
        ToString(next.update_on), " after Init with ", ToString(now.kind),
        " on ", ToString(now.update_on), ": only rates may change"));
  }
  return CheckOptimizer(next);
}

}  // namespace telegrad
