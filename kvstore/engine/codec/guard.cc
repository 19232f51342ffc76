#include "kvstore/engine/codec/guard.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace telegrad {
namespace {

// Casts have an option against it: the residual is there, and stays 0.
bool KeepsResidual(const CodecTraits& traits, const CodecOptions& options) {
  const bool is_off = std::any_of(
      traits.options.begin(), traits.options.end(),
      [&options](const CodecOption& option) {
        return option.field == &CodecOptions::residual && options.residual == 0;
      });
  return traits.needs_residual && !is_off;
}

double MeanOf(const Guard::State& state) {
  const auto count =
      static_cast<double>(state.recent.count + state.earlier.count);
  return count > 0 ? (state.recent.sum + state.earlier.sum) / count : 0;
}

}  // namespace

Guard::Guard(size_t num_elems, const CodecTraits& traits,
             const CodecOptions& options)
    : num_elems_(num_elems),
      stride_(std::max<size_t>(1, num_elems / kGuardSamples)),
      has_residual_(KeepsResidual(traits, options)),
      conserves_(has_residual_ && traits.conserves) {
  if (options.density > 0) {
    max_ratio_ *= std::max(1.0, kSparseDensity / options.density);
  }
}

void Guard::Before(const float* grad, const float* residual, Reads reads) {
  if (!samples_now_) return;
  const size_t step = reads == Reads::kWhole ? stride_ : 1;
  before_.clear();
  for (size_t i = 0, j = 0; j < num_samples(); i += step, ++j) {
    before_.push_back(has_residual_ ? grad[i] + residual[i] : grad[i]);
  }
}

void Guard::After(const float* grad, const float* residual, float threshold,
                  const float* decoded, Reads reads) {
  if (!samples_now_) return;
  const size_t step = reads == Reads::kWhole ? stride_ : 1;
  Sums sums{.has_residual = has_residual_};
  for (size_t i = 0, j = 0; j < num_samples(); i += step, ++j) {
    const double g = double{grad[i]};
    const double r = has_residual_ ? double{residual[i]} : 0;
    const double sent =
        conserves_ ? double{before_[j]} - r : double{decoded[i]};
    if (!std::isfinite(before_[j]) || !std::isfinite(sent)) continue;
    ++sums.count;
    sums.zeros += sent == 0;
    sums.saturated +=
        threshold > 0 && std::abs(r) > kSaturation * double{threshold};
    sums.grad_square += g * g;
    sums.residual_square += r * r;
    sums.sent_square += sent * sent;
    sums.error_square += (sent - g) * (sent - g);
    sums.dot += g * sent;
  }
  const bool has_gradient = sums.grad_square > 0;
  if (has_gradient) AddSquare(sums.grad_square);
  sums.mean_grad_square = MeanOf(state_);
  sums_ = sums;
  health_.residual_square = sums.residual_square;
  health_.mean_grad_square = sums.mean_grad_square;
  if (!has_gradient || gave_up()) return;
  state_.num_bad = IsBad() ? state_.num_bad + 1 : 0;
  health_.gave_up = gave_up();
}

void Guard::AddSquare(double square) {
  Squares& recent = state_.recent;
  if (static_cast<double>(recent.count * kGuardPeriod) >= max_ratio_) {
    state_.earlier = std::exchange(recent, {});
  }
  ++recent.count;
  recent.sum += square;
}

bool Guard::Restore(const State& state) {
  for (const Squares& each : {state.recent, state.earlier}) {
    if (!std::isfinite(each.sum) || each.sum < 0) return false;
  }
  state_ = state;
  health_.gave_up = gave_up();
  return true;
}

bool Guard::IsBad() const {
  if (!has_residual_) {
    return sums_.dot <=
           kLeastCosine * std::sqrt(sums_.grad_square * sums_.sent_square);
  }
  const double share =
      static_cast<double>(sums_.saturated) / static_cast<double>(sums_.count);
  return share > kMaxSaturated ||
         sums_.residual_square >
             max_ratio_ * max_ratio_ * sums_.mean_grad_square;
}

void Guard::Sums::Add(const Sums& other) {
  count += other.count;
  zeros += other.zeros;
  saturated += other.saturated;
  has_residual |= other.has_residual;
  grad_square += other.grad_square;
  mean_grad_square += other.mean_grad_square;
  residual_square += other.residual_square;
  sent_square += other.sent_square;
  error_square += other.error_square;
  dot += other.dot;
}

void Fill(const Guard::Sums& sums, TensorReport& report) {
  report.has_sample = sums.count > 0;
  if (!report.has_sample) return;
  const auto count = static_cast<double>(sums.count);
  report.zero_share = static_cast<double>(sums.zeros) / count;
  report.saturated_share = static_cast<double>(sums.saturated) / count;
  if (sums.mean_grad_square > 0) {
    report.residual_ratio =
        std::sqrt(sums.residual_square / sums.mean_grad_square);
  }
  if (sums.grad_square > 0) {
    report.relative_error = std::sqrt(sums.error_square / sums.grad_square);
  }
  const double norms = sums.grad_square * sums.sent_square;
  if (norms > 0) report.cosine = sums.dot / std::sqrt(norms);
  if (!sums.has_residual) {
    report.residual_ratio = std::numeric_limits<double>::quiet_NaN();
    report.saturated_share = report.residual_ratio;
  }
}

}  // namespace telegrad
