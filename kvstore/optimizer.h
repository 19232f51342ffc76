#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "kernels/dispatch.h"
#include "kvstore/options.h"

namespace telegrad {

// Steps some weights and keeps what their optimizer keeps between steps. The
// one implementation for servers, stores of one process and workers: weights
// that are stepped in parts become the same bits as in one piece. One thread.
class OptimizerState {
 public:
  // A step of `weight` with `grad`, both [n] f32, always of the same n. The
  // kind in `config` stays; rates may change.
  void Step(const OptimizerConfig& config, const RateMultipliers& own,
            const float* grad, size_t n, float* weight, Stream stream,
            const kernels::KernelTable& kernels = kernels::CpuKernels());

  // A step of adam or adamw in two halves, for codecs of few bits: the mean of
  // squares stays as it was after `frozen_after` steps, of which there were as
  // many (1-bit Adam, arXiv 2102.02888). Each contributor makes of its gradient
  // the mean that it alone would have; their sum, times the rescaling of 1 over
  // their number, becomes the mean of all.
  void ToMean(const OptimizerConfig& config, const RateMultipliers& own,
              const float* weight, size_t n, float* grad, Stream stream,
              DeviceKind device = DeviceKind::kCpu) const;
  void StepByMean(const OptimizerConfig& config, const RateMultipliers& own,
                  uint64_t frozen_after, const float* sum, size_t n,
                  float* weight, Stream stream,
                  DeviceKind device = DeviceKind::kCpu);

  // A step of adam or adamw around a codec of few bits, which loses least where
  // all elements are of one size: each contributor divides its gradient by the
  // root of the mean of squares that the steps before left, which all have, in
  // parts of its block's; the sum of these steps the weights, with Nesterov's
  // lead. Restore has given memory.
  void ToNormal(const OptimizerConfig& config, size_t n, float* grad,
                Stream stream, DeviceKind device = DeviceKind::kCpu) const;
  void StepByNormal(const OptimizerConfig& config, const RateMultipliers& own,
                    const float* sum, size_t n, float* weight, Stream stream,
                    DeviceKind device = DeviceKind::kCpu);

  // Counts a step that the caller takes; array 0, which Restore has given.
  Bytes CountStep();

  uint64_t num_steps() const { return num_steps_; }
  // What is kept, [n] f32 each: none before the first step.
  std::vector<ConstBytes> arrays() const;
  // As it was once: array `index` of so many steps. Before the first, memory
  // for it, all 0, on the weight's device; without it Step makes some.
  void Restore(uint64_t num_steps, size_t index, Buffer array);

 private:
  uint64_t num_steps_ = 0;
  Buffer first_;   // the momentum; Adam's mean; the others' squares
  Buffer second_;  // Adam's mean square
};

// InvalidArgument for rates that are not finite, betas outside [0, 1), an
// epsilon that is negative or, like a rate, not finite, and a result_scale that
// is not finite or beside an optimizer in the store.
absl::Status CheckOptimizer(const OptimizerConfig& config);

// Whether a store with weights may go on with `next`: rates change, nothing
// else.
absl::Status CheckOptimizerChange(const OptimizerConfig& now,
                                  const OptimizerConfig& next);

}  // namespace telegrad
