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
  bool has_auto_connections = false;              // PathOptions describes it
  std::function<MachineReport()> look = nullptr;  // PathOptions describes it
  // PathOptions describes it.
  std::shared_ptr<const GivenPlan> given = nullptr;
  ControlTiming timing = {};
  std::shared_ptr<Cancellation> cancellation = nullptr;  // may be null
  Duration operation_timeout = std::chrono::seconds(300);
  // Further facts that must be equal on all workers that join, and on servers
  // that have them: "UCX_TLS" -> "tcp". Their names are none of those that the
  // store itself uses (docs/control_plane.md).
  Facts facts = {};
  // Runs the part of the sums that a worker's process has, as a server of its
  // rank, in a thread: HostPart (kvstore.h). Null: the process has no part.
  // Where all workers have one the job has as many servers as workers and needs
  // no processes for them. The group's destructor then waits for the other
  // workers to leave.
  std::function<absl::Status(const JobOptions&)> part = nullptr;
  // A server, or a worker's part of the sums, writes a Chrome trace of some
  // rounds to SERVER_TRACE-server<rank>.json; empty: no trace.
  std::string server_trace = {};
  // Whether workers of a host sum first, so that one of them pushes; none: the
  // planner chooses. MakeKVStore then starts what that needs.
  std::optional<bool> tier_one = false;
  // The name of the host whose memory this worker shares; empty: this machine's
  // (in containers, each network's).
  std::string host = {};
  // Used only by the job that a host's workers have among themselves: their
  // ranks in the whole job, for messages.
  std::vector<int> ranks_in_job = {};
  std::optional<GdrWish> gdr = {};  // PathOptions describes it
  // Told once that a member waits for the scheduler; JoinRequest describes it.
  std::function<void(const std::string&)> on_wait = nullptr;
  // Called once when the job fails, on the control thread.
  std::function<void(const FatalEvent&)> on_fatal = nullptr;

  PathOptions path() const {
    return {transport, has_auto_connections, given, look, tier_one, host, gdr};
  }
};

// The facts of JoinRequest: what must be equal on workers and servers.
Facts MemberFactsOf(const JobOptions& options);

// A worker among the others of its job. Thread-safe.
class WorkerGroup {
 public:
  virtual ~WorkerGroup() = default;

  virtual const Membership& membership() const = 0;
  virtual const JobOptions& options() const = 0;
  virtual const DataPath& data_path() const = 0;

  // All workers call it with the same `name`; each gets all payloads, of at
  // most 1 MiB, by rank. It is a barrier, too, and ends after
  // operation_timeout.
  virtual absl::StatusOr<std::vector<std::string>> Gather(
      absl::string_view name, absl::string_view payload) = 0;
  // Reports that the data plane has lost `peer`; the scheduler judges.
  virtual void SuspectPeer(NodeId peer, absl::string_view why) = 0;
  // The trainer counts its steps here; messages of failures name the last one.
  virtual void SetStep(int64_t step) = 0;

  // Short texts that workers give worker 0 while a run goes on, as Job::SetNote
  // and Job::Notes; they come some heartbeats late.
  virtual void SetNote(std::string) {}
  virtual std::vector<std::string> Notes() const { return {}; }

  // Ends the job for all members, with this worker's reason.
  virtual void Fail(const absl::Status& why) = 0;
  // Calls `listener` once when the job has failed, from whatever thread; null
  // takes it back, and returns when it does not run.
  virtual void OnFailure(std::function<void(const absl::Status&)> listener) = 0;
  // Ranks of those that have left in order, some heartbeats late.
  virtual std::vector<int> Left() const { return {}; }
  // Leaves the job in order, after the last operation.
  virtual void Leave() = 0;

  int rank() const { return membership().self.rank; }
  // This worker's name in the job; groups of some of its workers use it, too.
  NodeId id() const {
    return membership().workers[static_cast<size_t>(rank())].id;
  }
  int num_workers() const {
    return static_cast<int>(membership().workers.size());
  }
  // Workers whose pushes servers count: one per host where its workers sum
  // first, else all.
  int num_pushers() const {
    return static_cast<int>(
        RanksThatPush(data_path().plan, membership().workers.size()).size());
  }
  int num_servers() const {
    return static_cast<int>(membership().servers.size());
  }
};

// Returns when everyone has joined. Errors carry the exit codes of Job::Join.
absl::StatusOr<std::unique_ptr<WorkerGroup>> JoinWorkers(
    const JobOptions& options);

// Makes a job of this process alone: worker 0 of 1, no servers, no scheduler.
std::unique_ptr<WorkerGroup> MakeSoloGroup(JobOptions options = {});

// Compares facts between workers; all call it with the same names. All get the
// same error, FailedPrecondition with exit code 31: it names the first fact
// that differs, two workers and both values.
absl::Status AgreeOnFacts(WorkerGroup& group, absl::string_view name,
                          const Facts& facts);

// The text as which facts travel.
std::string FactsText(const Facts& facts);

}  // namespace telegrad
