#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kvstore/auto_compression.h"
#include "trainer/worker_run.h"

namespace telegrad {

// AutoCompression of a run whose setting is auto; nothing for the others.
class AutoRun {
 public:
  // After the store's Init.
  absl::Status Start(RunContext& context);
  absl::Status AfterStep(const StepTimes& times);
  // All that was said so far; for the summary.
  const std::vector<std::string>& decisions() const { return decisions_; }

 private:
  void Say(const std::vector<std::string>& lines);

  RunContext* context_ = nullptr;
  std::optional<CalibrationCache> cache_ = {};
  std::unique_ptr<AutoCompression> auto_;
  std::vector<std::string> decisions_ = {};
};

}  // namespace telegrad
