#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "kvstore/job/control/elastic.h"
#include "kvstore/job/control/membership.h"
#include "kvstore/job/control/secret.h"
#include "kvstore/job/control/timing.h"
#include "kvstore/job/path/path_options.h"

namespace telegrad {

class Cancellation;  // kvstore/job/control/cancellation.h
class Metrics;       // base/metrics.h
class FlightLog;     // kvstore/job/flight/flight_log.h
struct FatalEvent;   // kvstore/job/control/fatal_event.h
struct JoinRequest;  // kvstore/job/control/job.h

// How a member joins a job and reaches the others.
struct JobOptions {
  std::string scheduler_address = {};  // "127.0.0.1:40123"
  std::string job_id = "local";
  Secret secret = {};
  int wanted_rank = -1;
  PathOptions path = {};
  ControlTiming timing = {};
  std::shared_ptr<Cancellation> cancellation = nullptr;  // may be null
  Duration operation_timeout = std::chrono::seconds(300);
  // Further facts that must be equal on all workers that join, and on servers
  // that have them: "UCX_TLS" -> "tcp". Their names are none of those that the
  // store itself uses (docs/control_plane.md).
  Facts facts = {};
  // A worker's job goes on when others die, and lets others come, each time in
  // a new epoch (JoinNextEpoch). It stands for a fact of kElasticFact.
  ElasticLimits elastic = {};
  // The epoch in which this process came into such a job; 0: it comes now.
  uint64_t since_epoch = 0;
  // Runs the part of the sums that a worker's process has, as a server of its
  // rank, in a thread: HostPart (kvstore/server.h). Null: the process has no
  // part. Where all workers have one the job has as many servers as workers and
  // needs no processes for them. The group's destructor then waits for the
  // other workers to leave.
  std::function<absl::Status(const JobOptions&)> part = nullptr;
  // A server, or a worker's part of the sums, writes a Chrome trace of some
  // rounds to SERVER_TRACE-server<rank>.json; empty: no trace.
  std::string server_trace = {};
  // A folder in which a server, or a worker's part of the sums, writes what it
  // has summed (kvstore/ps/server/ledger.h); empty: nowhere.
  std::string ledger = {};
  // Outlives the job's members of this process, which add their numbers; null:
  // nobody asks.
  Metrics* metrics = nullptr;
  // Where members note frames and operations, for when the job fails; null:
  // they note none.
  std::shared_ptr<FlightLog> flight = nullptr;
  // Used only by the job that a host's workers have among themselves: their
  // ranks in the whole job, for messages.
  std::vector<int> ranks_in_job = {};
  // Told once that a member waits for the scheduler; JoinRequest describes it.
  std::function<void(const std::string&)> on_wait = nullptr;
  // Called once when the job fails, on the control thread.
  std::function<void(const FatalEvent&)> on_fatal = nullptr;
  // Called there when an elastic job goes on in another epoch: who has died, or
  // has come.
  std::function<void(const FatalEvent&)> on_epoch = nullptr;
};

// How a member with these options asks to join.
JoinRequest JoinRequestOf(const JobOptions& options, Role role);

}  // namespace telegrad
