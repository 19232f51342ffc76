#pragma once

#include <string>

#include "absl/status/status.h"
#include "trainer/options.h"

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

}  // namespace telegrad
