#pragma once

#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "transport/node.h"

namespace telegrad {

// Where this process stands in a job that somebody else launched.
struct Placement {
  std::string launcher;  // "dmlc", "torchrun", "openmpi", "slurm", "pmix"
  // dmlc: one role per process, rank -1 (the scheduler gives it).
  // others: rank in the world; each rank is a worker with a co-located server
  // unless --servers S makes the last S ranks dedicated servers; rank 0 also
  // schedules.
  std::optional<Role> role;
  int rank = -1;
  int world_size = 0;
  int local_rank = 0;
  int num_workers = 0;  // dmlc only, else 0
  int num_servers = 0;
  std::string scheduler_host;  // empty: exchange it (PMIx)
  int scheduler_port = 0;
  std::string job_id = "local";
};

using GetEnv = std::function<const char*(const char*)>;

// Reads DMLC_*, then RANK/WORLD_SIZE/MASTER_*, OMPI_COMM_WORLD_*, SLURM_*;
// nullopt when no launcher is seen. InvalidArgument names a variable whose
// value is missing or unusable.
absl::StatusOr<std::optional<Placement>> DetectPlacement(const GetEnv& getenv);

// Publishes `mine` (rank 0: the scheduler's address) to all ranks of a PMIx job
// (Open MPI, Slurm) and returns rank 0's. Blocks until rank 0 has published, at
// most `timeout_s`. Unimplemented without PMIx in this build.
absl::StatusOr<std::string> ExchangeOverPmix(int rank, const std::string& mine,
                                             int timeout_s);

}  // namespace telegrad
