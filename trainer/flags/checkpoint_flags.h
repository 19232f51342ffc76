#pragma once

#include <CLI/CLI.hpp>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "trainer/flags/options.h"

namespace telegrad {

void AddCheckpointFlags(CLI::App& app, TrainOptions& options);

// --checkpoint-every: "100" are steps, "2epochs" epochs; the other is 0.
struct CheckpointInterval {
  int64_t steps = 0;
  int64_t epochs = 0;
};
absl::StatusOr<CheckpointInterval> ParseCheckpointInterval(
    absl::string_view text);

// InvalidArgument where flags ask for what a checkpoint has not: several runs.
absl::Status CheckCheckpointFlags(const TrainOptions& options);

}  // namespace telegrad
