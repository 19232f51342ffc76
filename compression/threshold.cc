#include "compression/threshold.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace telegrad {

absl::StatusOr<ThresholdSpec> ParseThreshold(absl::string_view text) {
  if (text == "auto") return ThresholdSpec{};
  ThresholdSpec spec{.kind = ThresholdSpec::Kind::kAbsolute};
  absl::string_view number = text;
  if (absl::EndsWith(number, ":batch")) {
    spec.kind = ThresholdSpec::Kind::kBatch;
    number.remove_suffix(6);
  } else if (absl::EndsWith(number, "rms")) {
    spec.kind = ThresholdSpec::Kind::kRms;
    number.remove_suffix(3);
  }
  if (!absl::SimpleAtof(number, &spec.value) || !std::isnormal(spec.value) ||
      spec.value <= 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "threshold '", text,
        "': use auto, a positive number such as 0.002 (units of the gradient "
        "as pushed), 0.5:batch (MXNet's unit) or 2rms (times the root mean "
        "square)"));
  }
  return spec;
}

std::string ToString(const ThresholdSpec& spec) {
  if (spec.kind == ThresholdSpec::Kind::kAuto) return "auto";
  return absl::StrCat(spec.value,
                      spec.kind == ThresholdSpec::Kind::kBatch ? ":batch"
                      : spec.kind == ThresholdSpec::Kind::kRms ? "rms"
                                                               : "");
}

float FixedThreshold(const ThresholdSpec& spec, int batch_size) {
  switch (spec.kind) {
    case ThresholdSpec::Kind::kAuto:
    case ThresholdSpec::Kind::kRms:
      return 0;
    case ThresholdSpec::Kind::kAbsolute:
      return spec.value;
    case ThresholdSpec::Kind::kBatch:
      return spec.value / static_cast<float>(batch_size);
  }
  return 0;
}

int16_t ProposeScale(double mean_square, double per_rms) {
  if (!(mean_square > 0) || !std::isfinite(mean_square)) return kNoScale;
  // frexp instead of log2: exact, so that all machines propose the same.
  // m in [0.5, 1): the target lies in [2^(e-1), 2^e); its nearest power of two
  // in the logarithm is 2^e from m = sqrt(1/2) on.
  int exponent = 0;
  const double target = per_rms * std::sqrt(mean_square);
  const double mantissa = std::frexp(target, &exponent);
  if (mantissa < 0.70710678118654757) --exponent;
  return static_cast<int16_t>(std::clamp<int>(exponent, kMinScale, kMaxScale));
}

bool FollowsGradient(const ThresholdSpec& spec) {
  return spec.kind == ThresholdSpec::Kind::kAuto ||
         spec.kind == ThresholdSpec::Kind::kRms;
}

double ThresholdPerRms(const ThresholdSpec& spec, double codecs_own) {
  return spec.kind == ThresholdSpec::Kind::kRms ? double{spec.value}
                                                : codecs_own;
}

float ScaleThreshold(int16_t scale) {
  return std::ldexp(1.0f, std::clamp(scale, kMinScale, kMaxScale));
}

}  // namespace telegrad
