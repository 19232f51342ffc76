#include "kvstore/dist/guard.h"

#include <algorithm>
#include <cmath>

namespace telegrad {

Guard::Guard(size_t num_elems, const CodecOptions& options)
    : num_elems_(num_elems),
      stride_(std::max<size_t>(1, num_elems / kGuardSamples)) {
  if (options.density > 0) {
    max_ratio_ *= std::max(1.0, kSparseDensity / options.density);
  }
}

void Guard::Before(uint64_t step, const float* grad, const float* residual) {
  samples_now_ = residual != nullptr && step % kGuardPeriod == 0;
  if (!samples_now_) return;
  before_.clear();
  for (size_t i = 0; i < num_elems_; i += stride_) {
    before_.push_back(grad[i] + residual[i]);
  }
}

void Guard::After(const float* grad, const float* residual, float threshold) {
  if (!samples_now_) return;
  Sums sums;
  for (size_t i = 0, j = 0; i < num_elems_; i += stride_, ++j) {
    if (!std::isfinite(before_[j])) continue;
    const double g = double{grad[i]};
    const double r = double{residual[i]};
    const double sent = double{before_[j]} - r;
    ++sums.count;
    sums.zeros += sent == 0;
    sums.saturated +=
        threshold > 0 && std::abs(r) > kSaturation * double{threshold};
    sums.grad_square += g * g;
    sums.residual_square += r * r;
    sums.sent_square += sent * sent;
    sums.dot += g * sent;
  }
  sums_ = sums;
  if (sums.count == 0 || sums.grad_square == 0 || gave_up()) return;
  const double share =
      static_cast<double>(sums.saturated) / static_cast<double>(sums.count);
  const bool is_bad =
      share > kMaxSaturated ||
      sums.residual_square > max_ratio_ * max_ratio_ * sums.grad_square;
  num_bad_ = is_bad ? num_bad_ + 1 : 0;
}

void Guard::Sums::Add(const Sums& other) {
  count += other.count;
  zeros += other.zeros;
  saturated += other.saturated;
  grad_square += other.grad_square;
  residual_square += other.residual_square;
  sent_square += other.sent_square;
  dot += other.dot;
}

void Fill(const Guard::Sums& sums, TensorReport& report) {
  report.has_sample = sums.count > 0;
  if (!report.has_sample) return;
  const auto count = static_cast<double>(sums.count);
  report.zero_share = static_cast<double>(sums.zeros) / count;
  report.saturated_share = static_cast<double>(sums.saturated) / count;
  if (sums.grad_square > 0) {
    report.residual_ratio = std::sqrt(sums.residual_square / sums.grad_square);
  }
  const double norms = sums.grad_square * sums.sent_square;
  if (norms > 0) report.cosine = sums.dot / std::sqrt(norms);
}

}  // namespace telegrad
