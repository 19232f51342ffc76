#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/socket.h"
#include "transport/node.h"

namespace telegrad {

// Where this process stands in a job that somebody else launched.
struct Placement {
  std::string launcher;  // "dmlc", "torchrun", "openmpi", "slurm", "mpich" ...
  // dmlc: one role per process, rank -1 (the scheduler gives it).
  // others: rank in the world; each rank is a worker with a co-located server
  // unless --servers S makes the last S ranks dedicated servers; rank 0 also
  // schedules.
  std::optional<Role> role = std::nullopt;
  int rank = -1;
  int world_size = 0;
  int local_rank = 0;
  int num_workers = 0;  // dmlc only, else 0
  int num_servers = 0;
  int num_hosts = 0;  // 0: not known; 2: several
  // Empty: rank 0's, exchanged over PMIx; with a port: the one host's own.
  std::string scheduler_host = {};
  int scheduler_port = 0;
  std::string job_id = "local";
};

using GetEnv = std::function<const char*(const char*)>;

// Reads DMLC_*, then RANK/WORLD_SIZE/MASTER_*, OMPI_COMM_WORLD_*, those of
// launchers which give a rank and a size alone (PMI_*, ...), SLURM_*, PMIX_*;
// nullopt when no launcher is seen. InvalidArgument names a variable whose
// value is missing or unusable.
absl::StatusOr<std::optional<Placement>> DetectPlacement(const GetEnv& getenv);

// The placement of a process that was told its part by flags. `scheduler`:
// "host:port".
absl::StatusOr<std::optional<Placement>> PlacementByHand(
    Role role, const std::string& scheduler, int num_workers, int num_servers);

// What a process is in such a job.
struct Parts {
  static constexpr int kNone = -1;
  static constexpr int kAnyRank = -2;  // the scheduler gives it
  bool is_scheduler = false;
  int server_rank = kNone;
  int worker_rank = kNone;
  int num_workers = 0;  // workers of the whole job
  int num_servers = 0;
};
// `dedicated_servers`: so many of the last ranks serve only; the others serve,
// too, if there are none or `workers_serve`, which is for launchers without
// roles.
absl::StatusOr<Parts> PartsOf(const Placement& placement, int dedicated_servers,
                              bool workers_serve = false);
// "worker 1, server 1, scheduler".
std::string TitleOf(const Parts& parts);

// These four decide where a member listens and where it looks for others.
//
// The address to listen on: OwnAddress (base/network_device.h) of `bind`, where
// "auto" is that by which the scheduler is reached; its name is looked up again
// and again for `timeout_s` (then exit code 25). `placement`: null when all
// processes are of this host. InvalidArgument (exit code 2) where the others
// could not reach it: loopback in a job of several hosts.
absl::StatusOr<std::string> BindAddress(const std::string& bind,
                                        const Placement* placement,
                                        double timeout_s = 0);
// The address on which the scheduler listens: the one where the others look for
// it.
std::string SchedulerBindAddress(const std::string& bind_address,
                                 const Placement& placement);

// Where the first of `num_runs` schedulers is, which have ports in a row.
// Blocks at most `timeout_s`. The process that has the scheduler asks that
// where it listens instead.
absl::StatusOr<HostPort> FindScheduler(const Placement& placement,
                                       const std::string& bind_address,
                                       int num_runs, int timeout_s);

// Where to connect to for the scheduler at `host`, in order: a name that is
// loopback here is of this host, whose scheduler may listen at its other
// addresses.
absl::StatusOr<std::vector<SocketAddress>> SchedulerAddresses(
    const std::string& host, int port);

// Publishes `mine` (rank 0: the scheduler's address) to all ranks of a PMIx job
// (Open MPI, Slurm) and returns rank 0's. Blocks until rank 0 has published, at
// most `timeout_s`. Unimplemented without PMIx in this build.
absl::StatusOr<std::string> ExchangeOverPmix(int rank, const std::string& mine,
                                             int timeout_s);

}  // namespace telegrad
