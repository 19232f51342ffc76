#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/clock.h"
#include "kvstore/job/control/job.h"
#include "kvstore/job/control/secret.h"
#include "kvstore/job/path/data_path.h"
#include "transport/transport.h"

// The workers that train together, seen from one of them.
namespace telegrad {

// How a member joins a job and reaches the others.
struct JobOptions {
  std::string scheduler_address = {};  // "127.0.0.1:40123"
  std::string job_id = "local";
  Secret secret = {};
  int wanted_rank = -1;
  TransportOptions transport = {};
  bool has_auto_connections = false;                 // as in PathOptions
  std::function<MachineReport()> look = nullptr;     // as well
  std::shared_ptr<const GivenPlan> given = nullptr;  // and this
  ControlTiming timing = {};
  std::shared_ptr<Cancellation> cancellation = nullptr;  // may be null
  Duration operation_timeout = std::chrono::seconds(300);
  // What else all workers must agree on, of those that join, and servers as far
  // as they have it: "UCX_TLS" -> "tcp". Names that the store itself does not
  // use (docs/control_plane.md).
  Facts facts = {};
  // Runs the part of the sums that a worker's process has, as a server of its
  // rank, in a thread: HostPart (kvstore.h); null: the process has none. Where
  // all workers have one the job has as many servers as workers and needs no
  // processes for them. The group's destructor then waits for the other workers
  // to leave.
  std::function<absl::Status(const JobOptions&)> part = nullptr;
  // Of a server, or a worker's part of the sums: a Chrome trace of what it did
  // in some rounds goes to SERVER_TRACE-server<rank>.json; empty: none.
  std::string server_trace = {};
  // Whether workers of a host sum first, so that one of them pushes; none: for
  // the planner to choose. MakeKVStore then starts what that needs.
  std::optional<bool> tier_one = false;
  // The name of the host whose memory this worker shares; empty: this machine's
  // (in containers, each network's).
  std::string host = {};
  // Of a job of a host's workers: their ranks in the whole job, for messages.
  std::vector<int> ranks_in_job = {};
  std::optional<GdrWish> gdr = {};  // as in PathOptions
  // Called once when the job fails, on the control thread.
  std::function<void(const FatalEvent&)> on_fatal = nullptr;

  PathOptions path() const {
    return {transport, has_auto_connections, given, look, tier_one, host, gdr};
  }
};

// What workers and servers must have alike, for JoinRequest.
Facts MemberFactsOf(const JobOptions& options);

// A worker among the others of its job. Thread-safe.
class WorkerGroup {
 public:
  virtual ~WorkerGroup() = default;

  virtual const Membership& membership() const = 0;
  virtual const JobOptions& options() const = 0;
  virtual const DataPath& data_path() const = 0;

  // All workers call it with the same `name`; each gets all payloads, of at
  // most 1 MiB, by rank. A barrier, too. Ends after operation_timeout.
  virtual absl::StatusOr<std::vector<std::string>> Gather(
      absl::string_view name, absl::string_view payload) = 0;
  // The data plane has lost `peer`: the scheduler judges.
  virtual void SuspectPeer(NodeId peer, absl::string_view why) = 0;
  // Shown when something fails; the trainer counts its steps here.
  virtual void SetStep(int64_t step) = 0;

  // What workers tell worker 0 while a run goes on, some heartbeats late:
  // Job's.
  virtual void SetNote(std::string) {}
  virtual std::vector<std::string> Notes() const { return {}; }

  // Ends the job for all members, with this worker's reason.
  virtual void Fail(const absl::Status& why) = 0;
  // Calls `listener` once when the job has failed, from whatever thread; null
  // takes it back, and returns when it does not run.
  virtual void OnFailure(std::function<void(const absl::Status&)> listener) = 0;
  // Ranks of those that have left in order, some heartbeats late.
  virtual std::vector<int> Left() const { return {}; }
  // Orderly end of this member, after the last operation.
  virtual void Leave() = 0;

  int rank() const { return membership().self.rank; }
  // Its name in the job, which a part of the job's workers has, too.
  NodeId id() const {
    return membership().workers[static_cast<size_t>(rank())].id;
  }
  int num_workers() const {
    return static_cast<int>(membership().workers.size());
  }
  // Those whose pushes servers count: hosts, where workers of one sum first.
  int num_pushers() const {
    return static_cast<int>(
        RanksThatPush(data_path().plan, membership().workers.size()).size());
  }
  int num_servers() const {
    return static_cast<int>(membership().servers.size());
  }
};

// Returns when everyone has joined. Errors carry exit codes (Job).
absl::StatusOr<std::unique_ptr<WorkerGroup>> JoinWorkers(
    const JobOptions& options);

// A job of this process alone: worker 0 of 1, no servers, no scheduler.
std::unique_ptr<WorkerGroup> MakeSoloGroup(JobOptions options = {});

// All workers call it with the same names; FailedPrecondition with exit code
// 31, which all get alike, names the first fact that differs, two workers and
// both values.
// They travel as FactsText.
absl::Status AgreeOnFacts(WorkerGroup& group, absl::string_view name,
                          const Facts& facts);

std::string FactsText(const Facts& facts);

}  // namespace telegrad
