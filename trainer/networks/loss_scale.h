#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace telegrad {

// Keeps gradients within float16's range: the loss counts `value` times as
// much, and what comes out is divided by it before anybody sees it. A dynamic
// one is halved after a step whose gradients are not finite, which all workers
// leave out, and doubled after so many others in a row, as NVIDIA's and
// PyTorch's are (Micikevicius et al., Mixed Precision Training, ICLR 2018).
// Powers of two: dividing rounds nothing. The same on all workers.
struct LossScale {
  static constexpr float kFirst = 65536;
  static constexpr int64_t kStepsToGrow = 2000;

  bool is_used = false;
  bool is_dynamic = false;
  float value = 1;
  int64_t num_good = 0;  // steps since it changed, or one was left out

  // After a step that `is_finite` or is left out. ExitCode::kNumericFault where
  // a smaller scale is of no use, or none can be had and a step may not be left
  // out (`may_skip`).
  absl::Status Update(bool is_finite, bool may_skip);
};

// The scale of a run's first step, by --dtype and --loss-scale.
// InvalidArgument for --loss-scale.
absl::StatusOr<LossScale> MakeLossScale(absl::string_view dtype,
                                        absl::string_view flag);

}  // namespace telegrad
