#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/clock.h"
#include "kvstore/job/control/cancellation.h"
#include "kvstore/job/control/fatal_event.h"
#include "kvstore/job/control/membership.h"
#include "kvstore/job/control/secret.h"
#include "kvstore/job/control/timing.h"
#include "transport/encryption.h"
#include "transport/node.h"

namespace telegrad {

// The largest payload that members give to each other through the scheduler.
constexpr size_t kMaxGatherBytes = size_t{1} << 20;

struct JoinRequest {
  std::string scheduler_address;
  Role role = Role::kWorker;
  int wanted_rank = -1;  // -1: the scheduler chooses
  Facts facts;
  std::string job_id = "local";
  Secret secret;
  // What is done to the records of one that has a secret.
  Encryption encryption = Encryption::kAuto;
  ControlTiming timing;
  std::shared_ptr<Cancellation> cancellation = nullptr;  // may be null
  // Told once for whom, where and until when the member waits, when it has not
  // reached the scheduler for a while. Null: a warning is logged.
  std::function<void(const std::string&)> on_wait = nullptr;
  // Called once, on the control thread, when the job fails. It may end the
  // process.
  std::function<void(const FatalEvent&)> on_fatal;
};

// A member's connection to the scheduler, with a heartbeat thread of its own.
// Thread-safe.
class Job {
 public:
  // Returns when everyone has joined. Errors carry exit codes: 25 join
  // deadline (names who is missing), 30 authentication, 31 facts differ (names
  // both members and both values), 24 scheduler unreachable.
  static absl::StatusOr<std::unique_ptr<Job>> Join(const JoinRequest& request);
  virtual ~Job() = default;

  virtual const Membership& membership() const = 0;
  int rank() const { return membership().self.rank; }
  int num_workers() const {
    return static_cast<int>(membership().workers.size());
  }

  // Every worker calls it with the same `name`; each gets all payloads by rank.
  // A payload is at most 1 MiB.
  virtual absl::StatusOr<std::vector<std::string>> Gather(
      absl::string_view name, absl::string_view payload,
      TimePoint deadline) = 0;
  absl::Status Barrier(absl::string_view name, TimePoint deadline) {
    return Gather(name, "", deadline).status();
  }

  // Leaves `payload`, at most 1 MiB, under a name that nobody has used yet, for
  // all members. At most 16 of one member; more, and a name twice, end the job
  // (31).
  virtual absl::Status Post(absl::string_view name,
                            absl::string_view payload) = 0;
  // What somebody has left under `name`; waits for it. More than 16 times the
  // number of members are refused, which ends the job (31).
  virtual absl::StatusOr<std::string> Read(absl::string_view name,
                                           TimePoint deadline) = 0;

  // Ends the job for everyone with `event` (its code, message, details).
  virtual void Fail(const FatalEvent& event) = 0;

  // The data plane has lost `peer`: the scheduler judges and, when it is truly
  // gone, on_fatal follows within a second or so.
  virtual void SuspectPeer(NodeId peer, absl::string_view why) = 0;

  // Shown in heartbeats and in the fatal line.
  virtual void SetStep(int64_t step) = 0;

  // SetNote gives a worker's heartbeats a text of at most 256 bytes from now
  // on. Notes, on worker 0, has the last texts of all workers, by rank, as far
  // as any are known.
  virtual void SetNote(std::string note) = 0;
  virtual std::vector<std::string> Notes() = 0;

  // Orderly end of this member. Workers: call it after the last operation.
  virtual void Leave() = 0;

  // Ranks of the workers that have left in order, as of the last heartbeat.
  virtual std::vector<int> Left() = 0;

  // Worker 0, in a job that lets others come (elastic.h): how many wait for the
  // gather in which they come in. As of the last heartbeat.
  virtual int Newcomers() { return 0; }

  // Servers: blocks until all workers have left or `deadline`.
  virtual absl::Status WaitForEnd(TimePoint deadline) = 0;
};

}  // namespace telegrad
