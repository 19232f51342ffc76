#include "tests/kvstore/simulation/reference_sums.h"

#include <utility>

namespace telegrad::testing {
namespace {

constexpr float kThreshold = 0.5f;

OfTensors Zeros(const std::vector<size_t>& sizes) {
  OfTensors zeros;
  for (const size_t size : sizes) zeros.emplace_back(size, 0.0f);
  return zeros;
}

}  // namespace

float GradientAt(int rank, int64_t step, size_t tensor, size_t i) {
  const auto mixed = static_cast<uint64_t>(rank + 1) *
                         static_cast<uint64_t>(step + 3) * (i % 7 + 1) +
                     5 * tensor + i;
  return static_cast<float>(static_cast<int>(mixed % 31) - 15) / 16.0f;
}

float TwoBit(float& residual, float value) {
  residual += value;
  const float sent = residual >= kThreshold    ? kThreshold
                     : residual <= -kThreshold ? -kThreshold
                                               : 0.0f;
  residual -= sent;
  return sent;
}

ReferenceSums::ReferenceSums(std::string codec, std::vector<size_t> sizes,
                             int64_t first, OfWorkers residuals, int hosts)
    : codec_(std::move(codec)),
      sizes_(std::move(sizes)),
      num_pushers_(hosts > 0 ? static_cast<size_t>(hosts) : residuals.size()),
      next_(first),
      residuals_(std::move(residuals)) {
  kept_[first] = residuals_;
}

// What one that pushes sends of an element.
float ReferenceSums::Pushed(size_t pusher, size_t tensor, size_t i) {
  float value = 0;
  for (size_t rank = pusher; rank < residuals_.size(); rank += num_pushers_) {
    value += GradientAt(static_cast<int>(rank), next_, tensor, i);
  }
  if (codec_ == "none") return value;
  return TwoBit(residuals_[pusher][tensor][i], value);
}

void ReferenceSums::GoTo(int64_t num_steps) {
  for (; next_ < num_steps; ++next_) {
    OfTensors& sum = sums_[next_] = Zeros(sizes_);
    for (size_t pusher = 0; pusher < num_pushers_; ++pusher) {
      for (size_t tensor = 0; tensor < sizes_.size(); ++tensor) {
        for (size_t i = 0; i < sizes_[tensor]; ++i) {
          sum[tensor][i] += Pushed(pusher, tensor, i);
        }
      }
    }
    kept_[next_ + 1] = residuals_;
  }
}

const OfTensors& ReferenceSums::Sum(int64_t step) {
  GoTo(step + 1);
  return sums_.at(step);
}

const OfWorkers& ReferenceSums::Residuals(int64_t num_steps) {
  GoTo(num_steps);
  kept_.erase(kept_.begin(), kept_.lower_bound(num_steps));
  return kept_.at(num_steps);
}

OfWorkers Dealt(const OfWorkers& residuals, int num_workers,
                const std::vector<size_t>& sizes) {
  OfWorkers dealt(static_cast<size_t>(num_workers), Zeros(sizes));
  for (size_t old = 0; old < residuals.size(); ++old) {
    OfTensors& to = dealt[old % dealt.size()];
    for (size_t tensor = 0; tensor < sizes.size(); ++tensor) {
      for (size_t i = 0; i < sizes[tensor]; ++i) {
        to[tensor][i] += residuals[old][tensor][i];
      }
    }
  }
  return dealt;
}

}  // namespace telegrad::testing
