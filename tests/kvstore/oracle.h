#pragma once

#include <cmath>
#include <cstddef>
#include <optional>
#include <vector>

#include "kvstore/kvstore.h"

namespace telegrad::testing {

// On a grid of 2^-10, so that every sum below is exact in float32.
inline float GradOf(int worker, int step, size_t i) {
  const auto product = static_cast<size_t>((worker + 1) * (step + 1));
  const auto mod = static_cast<int>(product * (i % 7 + 1) % 31);
  return static_cast<float>(mod - 15) / 1024.0f;
}

// What one tensor's rounds must give, from the 2-bit and 1-bit rules of MXNet
// and those of reply modes and thresholds in words; in doubles, exact on the
// grid.
class TensorOracle {
 public:
  TensorOracle(size_t n, int workers, const CompressionConfig& compression)
      : n_(n),
        workers_(workers),
        compression_(compression),
        is_plain_(compression.type == "none" ||
                  4 * static_cast<int64_t>(n) < compression.min_bytes),
        is_one_bit_(compression.type == "1bit"),
        residuals_(static_cast<size_t>(workers), std::vector<double>(n)),
        pushed_(residuals_),
        given_(residuals_),
        server_residual_(n) {}

  // The sums of the next round; `dense` whatever the reply mode.
  std::vector<float> NextSums(bool is_dense) {
    std::vector<double> sums(n_);
    const double t = is_plain_ ? 0 : Threshold();
    for (int w = 0; w < workers_; ++w) {
      for (size_t i = 0; i < n_; ++i) sums[i] += Push(w, i, t);
    }
    ++step_;
    if (!is_plain_ && !is_dense && compression_.reply == ReplyMode::kReencode) {
      Reencode(t, sums);
    }
    return {sums.begin(), sums.end()};
  }

  // Sum of decoded pushes + residual == sum of gradients, element by element.
  bool IsConserved() const {
    for (size_t w = 0; w < residuals_.size(); ++w) {
      for (size_t i = 0; i < n_; ++i) {
        if (pushed_[w][i] + residuals_[w][i] != given_[w][i]) return false;
      }
    }
    return true;
  }

 private:
  double Push(int worker, size_t i, double t) {
    const double g = static_cast<double>(GradOf(worker, step_, i));
    if (is_plain_) return g;
    const auto w = static_cast<size_t>(worker);
    double& residual = residuals_[w][i];
    residual += g;
    given_[w][i] += g;
    const double code = Code(residual, t);
    residual -= code;
    pushed_[w][i] += code;
    return code;
  }

  double Code(double value, double t) const {
    if (is_one_bit_) return value > 0 ? t : -t;
    return value >= t ? t : (value <= -t ? -t : 0);
  }

  // What 1bit sends; fixed; or 2^e: e in force is what was wished for two
  // rounds earlier, and the first wish at the start.
  double Threshold() {
    if (is_one_bit_) return 1;
    if (compression_.threshold.kind != ThresholdSpec::Kind::kAuto) {
      return static_cast<double>(
          FixedThreshold(compression_.threshold, compression_.batch_size));
    }
    std::optional<int> wish;
    for (int w = 0; w < workers_; ++w) {
      const std::optional<int> one = Wish(w);
      if (one && (!wish || *one > *wish)) wish = one;
    }
    if (step_ == 0) exponents_[0] = exponents_[1] = wish.value_or(-10);
    int& slot = exponents_[step_ % 2];
    const int in_force = slot;
    slot = wish.value_or(in_force);
    return std::ldexp(1.0, in_force);
  }

  // The power of two nearest to the RMS of gradient plus residual, in at most
  // 4096 samples.
  std::optional<int> Wish(int worker) const {
    const size_t samples = std::min<size_t>(n_, 4096);
    double squares = 0;
    for (size_t j = 0; j < samples; ++j) {
      const size_t i = j * n_ / samples;
      const double v = residuals_[static_cast<size_t>(worker)][i] +
                       static_cast<double>(GradOf(worker, step_, i));
      squares += v * v;
    }
    if (squares == 0) return std::nullopt;
    const double mean = squares / static_cast<double>(samples);
    return static_cast<int>(std::lround(0.5 * std::log2(mean)));
  }

  // The server's own error feedback, with the quantum 2^ceil(log2 W) * t.
  void Reencode(double t, std::vector<double>& sums) {
    double q = t;
    while (q < t * workers_) q *= 2;
    for (size_t i = 0; i < n_; ++i) {
      double& residual = server_residual_[i];
      residual += sums[i];
      sums[i] = Code(residual, q);
      residual -= sums[i];
    }
  }

  const size_t n_;
  const int workers_;
  const CompressionConfig compression_;
  const bool is_plain_;
  const bool is_one_bit_;
  int step_ = 0;
  int exponents_[2] = {0, 0};
  std::vector<std::vector<double>> residuals_;
  std::vector<std::vector<double>> pushed_;
  std::vector<std::vector<double>> given_;
  std::vector<double> server_residual_;
};

// SGD with momentum by hand, float32 in MXNet's order.
class SgdOracle {
 public:
  SgdOracle(std::vector<float> weights, SgdParameters sgd)
      : weights_(std::move(weights)), momentum_(weights_.size()), sgd_(sgd) {}
  const std::vector<float>& Update(const std::vector<float>& grad) {
    for (size_t i = 0; i < weights_.size(); ++i) {
      const float scaled = sgd_.rescale * grad[i];
      const float decay = sgd_.weight_decay * weights_[i];
      const float g = scaled + decay;
      const float kept = sgd_.momentum_rate * momentum_[i];
      const float step = sgd_.learning_rate * g;
      momentum_[i] = kept - step;
      weights_[i] = weights_[i] + momentum_[i];
    }
    return weights_;
  }

 private:
  std::vector<float> weights_;
  std::vector<float> momentum_;
  const SgdParameters sgd_;
};

}  // namespace telegrad::testing
