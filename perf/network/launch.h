#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvstore/job/launch/placement.h"
#include "perf/network/network_options.h"
#include "perf/network/rendezvous.h"

namespace telegrad::perf {

// What a rank of a benchmark is given.
struct Rank {
  int rank = 0;
  int world_size = 1;
  bool is_thread = false;  // shares its process with the other ranks
  std::unique_ptr<Rendezvous> rendezvous = nullptr;
};
using RankBody = std::function<absl::Status(const NetworkOptions&, Rank&)>;

// Runs `body` as the rank or ranks that this process is:
//   --rank given: that one;
//   --transport inproc: all of them, as threads;
//   under mpirun, srun or torchrun: the launcher's;
//   --rendezvous given: one of two, the first on the host named is rank 0;
//   else rank 0, and starts the others as processes of this program.
// With has_companions each of these starts a further rank, too.
// Returns this process's first error. `words`: main's argv.
absl::Status RunRanks(NetworkOptions options,
                      const std::vector<std::string>& words,
                      const RankBody& body);

// What a launcher (mpirun, srun, torchrun) has made this process; nullopt
// without one.
absl::StatusOr<std::optional<Placement>> LaunchedAs();

// Whether this process starts all ranks, on this host, or has them as threads.
absl::StatusOr<bool> StartsAll(const NetworkOptions& options);

// Every rank's `mine` must be the same; the error names two that differ.
absl::Status Agree(const NetworkOptions& options, Rank& rank,
                   const std::string& mine);

}  // namespace telegrad::perf
