#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

// The threshold t of a codec: fixed by the user, or `auto`: a power of two per
// tensor that follows the gradient's scale, the same on all workers, so that
// sums stay exact.
namespace telegrad {

struct ThresholdSpec {
  enum class Kind : uint8_t {
    kAuto = 0,
    kAbsolute = 1,  // in the units of the gradient as pushed
    kBatch = 2,     // MXNet's: gradients summed, not averaged, over a batch
    kRms = 3,       // as auto, with this factor instead of the codec's
  };
  Kind kind = Kind::kAuto;
  float value = 0;

  bool operator==(const ThresholdSpec&) const = default;
};

// "auto", "0.5", "0.5:batch", "2rms". InvalidArgument says what is possible.
absl::StatusOr<ThresholdSpec> ParseThreshold(absl::string_view text);
std::string ToString(const ThresholdSpec& spec);

// The fixed threshold for gradients that are means over `batch_size` samples;
// 0 for those that follow the gradient.
float FixedThreshold(const ThresholdSpec& spec, int batch_size);

// Scales are exponents of two; the first two are none.
constexpr int16_t kFixedScale = INT16_MIN;   // the threshold of the config
constexpr int16_t kNoScale = INT16_MIN + 1;  // no wish, nothing known
constexpr int16_t kMinScale = -100;
constexpr int16_t kMaxScale = 100;
// In force when no worker has a wish (all gradients were zero).
constexpr int16_t kDefaultScale = -10;

// The exponent that a worker proposes for a tensor whose gradient plus residual
// has this mean square: nearest power of two to per_rms times the RMS;
// kNoScale when it is zero.
constexpr double kThresholdPerRms = 1.0;
int16_t ProposeScale(double mean_square, double per_rms = kThresholdPerRms);

// Whether the threshold is agreed step by step, and the factor for it.
bool FollowsGradient(const ThresholdSpec& spec);
double ThresholdPerRms(const ThresholdSpec& spec, double codecs_own);

// 2^scale.
float ScaleThreshold(int16_t scale);

}  // namespace telegrad
