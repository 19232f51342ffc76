#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kvstore/options.h"

// Which codecs go with which optimizers, for all that choose for their users;
// measured in docs/results/accuracy.md.
namespace telegrad {

// Codecs of fewer bits per element and step harm steps that divide by a mean of
// squares (Adam, RMSprop, Muon), which takes what is held back for noise.
constexpr double kLeastBitsForSquares = 2.5;
// Codecs of fewer bits want the momentum in front of them.
constexpr double kLeastBitsForMomentum = 4;

// Bits per element of a large tensor's push, at most. Errors as ParseCodecSpec.
absl::StatusOr<double> BitsOf(absl::string_view codec);

// Whether a codec of `config`, a rule's or an alternative included, wants the
// momentum in front of it: not dgc, which has one of its own, nor powersgd,
// whose paper leaves it to the steps. Errors as CheckCodecRules.
absl::StatusOr<bool> WantsMomentumBefore(const CompressionConfig& config);

}  // namespace telegrad
