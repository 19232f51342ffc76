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
  // After the store's Init. `known`: AutoOptions'.
  absl::Status Start(RunContext& context, const Calibration& known);
  absl::Status AfterStep(const StepTimes& times);
  // AutoCompression's.
  std::optional<AutoMeasurement> TakeMeasurement();

 private:
  void Say(const std::vector<std::string>& lines);

  RunContext* context_ = nullptr;
  std::optional<CalibrationCache> cache_ = {};
  std::unique_ptr<AutoCompression> auto_;
};

}  // namespace telegrad
