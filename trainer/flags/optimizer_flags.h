#pragma once

#include <string>

#include "absl/status/status.h"
#include "trainer/flags/options.h"

namespace CLI {
class App;
}

namespace telegrad {

// The flags of the optimizer whose text needs a second look.
struct RawOptimizerFlags {
  std::string optimizer = "sgd";
  std::string lr_mult;
  std::string wd_mult;
};

// --max-staleness, --local-steps and what belongs to it.
void AddConsistencyFlags(CLI::App& app, TrainOptions& options);
void AddOptimizerFlags(CLI::App& app, TrainOptions& options,
                       RawOptimizerFlags& raw);
absl::Status FinishOptimizerFlags(const RawOptimizerFlags& raw,
                                  TrainOptions& options);

// Whether the optimizer is adam, adamw or, in part, muon.
bool HasBetas(const TrainOptions& options);
// Whether it is sgd, nag or muon, which have --mom.
bool HasMomentum(const TrainOptions& options);
// Whether --beta2 and --epsilon are its numbers, too.
bool HasBeta2(const TrainOptions& options);
bool HasEpsilon(const TrainOptions& options);
// Where it has not: which are.
inline constexpr char kForAdams[] =
    "it is for --optimizer adam, adamw and muon";
inline constexpr char kForBeta2[] =
    "it is for --optimizer adam, adamw, muon and rmsprop";
inline constexpr char kForEpsilon[] =
    "it is for --optimizer adam, adamw, muon, adagrad and rmsprop";
// Whether a running mean of squares of each gradient, as codecs leave it,
// divides the steps: of adam, adamw and rmsprop; adagrad's sum of all squares
// does not mind.
bool StepsByMeanSquares(const TrainOptions& options);

// Whether momentum behind the codec is in the steps of a network that learns.
bool HasMomentumBehind(const TrainOptions& options);
// --gc-type auto before a mean of squares or muon: leaves out what harms them,
// with the reason; before the first refuses it where it was asked for.
// --gc-normalize, with which int2 harms no mean of squares; --gc-momentum:
// where each setting's momentum is.
absl::Status SettleFewBits(TrainOptions& options);

}  // namespace telegrad
