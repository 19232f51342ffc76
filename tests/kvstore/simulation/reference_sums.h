#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

// What a job of workers must compute, by ten lines of arithmetic of its own on
// numbers that float32 adds exactly in any order.
namespace telegrad::testing {

using Values = std::vector<float>;
using OfTensors = std::vector<Values>;
using OfWorkers = std::vector<OfTensors>;

// Weights step by it times the sum.
constexpr float kRate = 0.125f;

// A worker's gradient in a step: multiples of 1/16.
float GradientAt(int rank, int64_t step, size_t tensor, size_t i);

// What 2bit with the threshold 0.5 sends, and holds back from then on.
float TwoBit(float& residual, float value);

// The sums of one epoch, from a step on. The codec is "none" or "2bit" with the
// threshold 0.5.
class ReferenceSums {
 public:
  ReferenceSums() = default;
  // `residuals`: of each worker, before step `first`. Where workers sum first,
  // in turn on so many `hosts`, each of these has its first one's.
  ReferenceSums(std::string codec, std::vector<size_t> sizes, int64_t first,
                OfWorkers residuals, int hosts);

  // The sum over all workers in `step`, not before `first`.
  const OfTensors& Sum(int64_t step);
  // Of each worker, after so many steps, of which it keeps the newest.
  const OfWorkers& Residuals(int64_t num_steps);

 private:
  void GoTo(int64_t num_steps);
  float Pushed(size_t pusher, size_t tensor, size_t i);

  std::string codec_;
  std::vector<size_t> sizes_;
  size_t num_pushers_ = 0;
  int64_t next_ = 0;
  OfWorkers residuals_;
  std::map<int64_t, OfTensors> sums_;
  std::map<int64_t, OfWorkers> kept_;  // residuals, by steps done
};

// Dealt out to so many workers as `--reshard-residuals sum` does: worker r has
// those of r, r + n, r + 2n.
OfWorkers Dealt(const OfWorkers& residuals, int num_workers,
                const std::vector<size_t>& sizes);

}  // namespace telegrad::testing
