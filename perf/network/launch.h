#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvstore/job/control/scheduler.h"
#include "kvstore/job/launch/placement.h"
#include "kvstore/job/path/worker_group.h"
#include "perf/network/network_options.h"

namespace telegrad::perf {

// What the ranks of a command do, which are the members of a job: workers
// first, then servers.
struct Benchmark {
  // Flags that all must be given alike, beside those that all commands have.
  Facts facts = {};
  int num_servers = 0;       // ranks that serve
  bool hosts_parts = false;  // JobOptions::part: each worker has one
  // Changes how a rank joins; may be null.
  std::function<absl::Status(JobOptions&)> settle = nullptr;
  // What a worker does once all have joined.
  std::function<absl::Status(const NetworkOptions&, WorkerGroup&)> work;
  // What a server does, which joins by itself; null where none are.
  std::function<absl::Status(const JobOptions&)> serve = nullptr;
};

// Runs the rank or ranks that this process is, of which rank 0 has the job's
// scheduler:
//   --rank given: that one;
//   --transport inproc: all of them, as threads;
//   under mpirun, srun or torchrun: the launcher's;
//   --rendezvous given: one of two, the first on the host named is rank 0;
//   else rank 0, and starts the others as processes of this program.
// With has_companions each of these starts a further rank, too.
// Returns this process's first error. `words`: main's argv.
absl::Status RunRanks(NetworkOptions options,
                      const std::vector<std::string>& words,
                      const Benchmark& benchmark);

// Runs `body` where there are no other ranks.
absl::Status RunAlone(const NetworkOptions& options,
                      const std::function<absl::Status()>& body);

// Starts a scheduler at "node1:7777". Null where node1 is another machine or
// somebody listens there: of processes with the same address, wherever they
// run, one has it. The error says why none can.
absl::StatusOr<std::unique_ptr<Scheduler>> StartIfFirst(
    const std::string& host_port, SchedulerOptions options);

// What a launcher (mpirun, srun, torchrun) has made this process; nullopt
// without one.
absl::StatusOr<std::optional<Placement>> LaunchedAs();

// Whether the ranks are threads of one process.
bool AreThreads(const NetworkOptions& options);

// Whether this process starts all ranks, on this host, or has them as threads.
absl::StatusOr<bool> StartsAll(const NetworkOptions& options);

}  // namespace telegrad::perf
