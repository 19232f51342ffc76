#include "trainer/networks/loss_scale.h"

#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/exit_code.h"

namespace telegrad {
namespace {

absl::Status Overflow(absl::string_view why) {
  return WithExitCode(
      ExitCode::kNumericFault,
      absl::OutOfRangeError(
          absl::StrCat("gradients are not finite in --dtype float16 ", why)));
}

}  // namespace

absl::Status LossScale::Update(bool is_finite, bool may_skip) {
  if (!is_dynamic) {
    if (is_finite || may_skip || !is_used) return absl::OkStatus();
    return Overflow(absl::StrCat(
        "with --loss-scale ", value,
        ": dynamic finds one, --gc-nonfinite skip leaves such steps out, and "
        "--dtype bfloat16 needs none"));
  }
  if (!is_finite) {
    num_good = 0;
    value /= 2;
    return value >= 1 ? absl::OkStatus()
                      : Overflow("without a loss scale, either");
  }
  if (++num_good < kStepsToGrow) return absl::OkStatus();
  num_good = 0;
  value *= 2;
  return absl::OkStatus();
}

absl::StatusOr<LossScale> MakeLossScale(absl::string_view dtype,
                                        absl::string_view flag) {
  LossScale scale{.is_used = dtype == "float16"};
  if (!scale.is_used) return scale;
  scale.is_dynamic = flag == "dynamic";
  if (scale.is_dynamic) {
    scale.value = LossScale::kFirst;
    return scale;
  }
  int exponent = 0;
  const bool is_number = absl::SimpleAtof(flag, &scale.value);
  if (is_number && std::isfinite(scale.value) && scale.value >= 1 &&
      std::frexp(scale.value, &exponent) == 0.5f) {
    return scale;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--loss-scale '", flag,
                   "': it takes dynamic, or a power of two from 1 on"));
}

}  // namespace telegrad
