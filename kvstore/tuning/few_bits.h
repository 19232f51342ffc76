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

// Whether this codec has levels of one distance in a block, which bear few bits
// beside a mean of squares where elements are of one size
// (OptimizerState::ToNormal): int2, int3 and those with shared scales.
absl::StatusOr<bool> WantsNormal(absl::string_view codec);
// Whether a codec of `config` does, a rule's or an alternative included. Errors
// as CheckCodecRules.
absl::StatusOr<bool> WantsNormal(const CompressionConfig& config);
// Whether this codec harms steps by a mean of squares.
absl::StatusOr<bool> HarmsSquares(absl::string_view codec, bool is_normal);
// Whether a momentum of this rate behind the codec costs accuracy: it keeps the
// direction of what few bits held back, which comes late. Not of dgc, which has
// a momentum of its own, nor of codecs that hold nothing back.
absl::StatusOr<bool> ComesLate(absl::string_view codec, double momentum);

}  // namespace telegrad
