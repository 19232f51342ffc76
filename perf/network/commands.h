#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "kvstore/job/launch/placement.h"

// The subcommands that measure a network (docs/benchmarks.md).
namespace CLI {
class App;
}

namespace telegrad::perf {

void AddLatencyCommand(CLI::App& app, int& exit_code);
void AddBandwidthCommand(CLI::App& app, int& exit_code);
void AddBibwCommand(CLI::App& app, int& exit_code);
void AddMsgrateCommand(CLI::App& app, int& exit_code);
void AddAllreduceCommand(CLI::App& app, int& exit_code);
void AddReduceScatterCommand(CLI::App& app, int& exit_code);
void AddAllgatherCommand(CLI::App& app, int& exit_code);
void AddBroadcastCommand(CLI::App& app, int& exit_code);
void AddAlltoallCommand(CLI::App& app, int& exit_code);
void AddBarrierCommand(CLI::App& app, int& exit_code);
void AddOperationsCommand(CLI::App& app, int& exit_code);
void AddPushPullCommand(CLI::App& app, int& exit_code);

// Where mpirun, srun or torchrun put this process; nullopt without them.
absl::StatusOr<std::optional<Placement>> PlacementOfLauncher();

}  // namespace telegrad::perf
