#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kvstore/job/control/membership.h"

// The workers that train together, seen from one of them.
namespace telegrad {

struct DataPath;    // kvstore/job/path/data_path.h
struct JobOptions;  // kvstore/job/path/job_options.h

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
  // Once a member has died and the job goes on without it: what this worker
  // wants as its rank when it joins the job again. This group has failed.
  virtual std::optional<int> seat() const { return std::nullopt; }
  // Fail, of a job that goes on in other epochs: its own error may come before
  // the word that this one has ended, for which it waits. seat() then.
  virtual std::optional<int> FailOrGoOn(const absl::Status& why) {
    Fail(why);
    return seat();
  }
  // On worker 0: how many wait to come into the job, which is in LetIn. Some
  // heartbeats late.
  virtual int Newcomers() const { return 0; }
  // In a job with JobOptions::elastic: the first of the ranks that are in it
  // longest, who have what was trained.
  virtual int elder() const { return 0; }
  // Leaves the job in order, after the last operation.
  virtual void Leave() = 0;
  // Has it until the group ends: what other workers may need that long.
  virtual void Keep(std::shared_ptr<void>) {}

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
  int num_pushers() const;
  int num_servers() const {
    return static_cast<int>(membership().servers.size());
  }
};

// Returns when everyone has joined. Errors carry the exit codes of Job::Join.
absl::StatusOr<std::unique_ptr<WorkerGroup>> JoinWorkers(
    const JobOptions& options);

// All workers call it when nothing is under way. Where others wait to come into
// the job it is an error, and an epoch with them begins.
absl::Status LetIn(WorkerGroup& group);
// Joins again a job with JobOptions::elastic that goes on without a member, or
// with others; FailedPrecondition: neither. What was made in the group is gone.
absl::StatusOr<std::unique_ptr<WorkerGroup>> JoinNextEpoch(
    std::unique_ptr<WorkerGroup> ended);

// Makes a job of this process alone: worker 0 of 1, no servers, no scheduler.
std::unique_ptr<WorkerGroup> MakeSoloGroup(const JobOptions& options);
std::unique_ptr<WorkerGroup> MakeSoloGroup();

// Compares facts between workers; all call it with the same names. All get the
// same error, FailedPrecondition with exit code 31: it names the first fact
// that differs, two workers and both values.
absl::Status AgreeOnFacts(WorkerGroup& group, absl::string_view name,
                          const Facts& facts);

// The text as which facts travel.
std::string FactsText(const Facts& facts);

}  // namespace telegrad
