#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "compression/codec.h"
#include "kvstore/options.h"

namespace telegrad {

// Watches one chunk's codec on a sample of its elements, every kGuardPeriod
// steps. It gives up on the codec, for good, after kGuardPatience bad samples
// in a row.
//   With a residual: a sample is bad when more than kMaxSaturated of the
//   residuals are beyond kSaturation thresholds, or when the residual's norm is
//   more than R times the gradients'. R is kMaxResidualRatio, for sparser
//   codecs, where elements wait longer, times kSparseDensity / density.
//   The gradients' norm g is the root of their mean square over the last R to
//   2 R steps. R gradients add up to at most sqrt(2) R g (Cauchy-Schwarz): a
//   larger residual has waited for longer than R steps.
//   Without: when the cosine of what was sent and the gradient is at most
//   kLeastCosine. Nothing makes up for what is lost then: of a code that is
//   right on average the noise has 256 times the gradient's energy, and a cast
//   that sends zeros for all has a cosine of 0.
constexpr uint64_t kGuardPeriod = 16;
constexpr int kGuardPatience = 4;
constexpr size_t kGuardSamples = 1024;
constexpr double kSaturation = 64;
constexpr double kMaxSaturated = 0.05;
constexpr double kMaxResidualRatio = 256;
constexpr double kSparseDensity = 0.05;
constexpr double kLeastCosine = 1.0 / 16;

// A number that one thread changes and any reads, and that can be copied.
template <typename T>
class Published {
 public:
  Published(T value = {}) : value_(value) {}  // NOLINT: as the number itself
  Published(const Published& other) : Published(other.get()) {}
  Published& operator=(const Published& other) { return *this = other.get(); }
  Published& operator=(T value) {
    value_.store(value, std::memory_order_relaxed);
    return *this;
  }
  T get() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<T> value_;
};

class Guard {
 public:
  Guard() = default;
  Guard(size_t num_elems, const CodecTraits& traits,
        const CodecOptions& options);

  // Before Encode in each step: whether a sample is taken of it.
  bool Begin(uint64_t step) { return samples_now_ = step % kGuardPeriod == 0; }
  // Whether this step's sample cannot be told from the residual alone.
  bool needs_decoded() const { return samples_now_ && !conserves_; }
  bool has_residual() const { return has_residual_; }
  // Samples have each `stride`-th element of a gradient or the like.
  size_t stride() const { return stride_; }
  size_t num_samples() const { return (num_elems_ + stride_ - 1) / stride_; }

  // Where arrays are sampled: they lie as a whole in memory, or the sampled
  // elements do, side by side.
  enum class Reads : uint8_t { kWhole, kSamples };
  // Around Encode, where a sample is taken, of the gradient and the residual,
  // null for codecs without. `threshold` is 0 for those without. `decoded`,
  // what Decode makes of the codes, is read when needs_decoded().
  void Before(const float* grad, const float* residual, Reads reads);
  void After(const float* grad, const float* residual, float threshold,
             const float* decoded, Reads reads);

  bool gave_up() const { return state_.num_bad >= kGuardPatience; }

  // What operators see of it; any thread may read.
  struct Health {
    Published<double> residual_square = 0;  // the last sample's
    Published<double> mean_grad_square = 0;
    Published<bool> gave_up = false;
  };
  const Health& health() const { return health_; }

  // Squares of gradients in samples in a row, without gradients that were 0.
  struct Squares {
    uint64_t count = 0;
    double sum = 0;
  };
  // What later samples depend on.
  struct State {
    int num_bad = 0;  // samples in a row
    Squares recent;
    Squares earlier;  // just before these
  };
  const State& state() const { return state_; }
  // Takes a state that may be any bytes: false where it cannot be.
  bool Restore(const State& state);

  // Sums over samples, for tensors of many chunks.
  struct Sums {
    uint64_t count = 0;
    uint64_t zeros = 0;
    uint64_t saturated = 0;
    bool has_residual = false;
    double grad_square = 0;
    double mean_grad_square = 0;  // with those of the samples before
    double residual_square = 0;
    double sent_square = 0;
    // Norm of what was sent less the gradient, squared.
    double error_square = 0;
    double dot = 0;
    void Add(const Sums& other);
  };
  const Sums& sums() const { return sums_; }

 private:
  void AddSquare(double square);
  bool IsBad() const;

  size_t num_elems_ = 0;
  size_t stride_ = 1;
  bool has_residual_ = false;  // what is not sent waits there
  bool conserves_ = false;     // what was sent is what the residual lost
  double max_ratio_ = kMaxResidualRatio;
  bool samples_now_ = false;
  std::vector<float> before_;  // gradient plus residual
  Sums sums_;                  // the last sample's
  State state_;
  Health health_;
};

// Fills the report's numbers.
void Fill(const Guard::Sums& sums, TensorReport& report);

}  // namespace telegrad
