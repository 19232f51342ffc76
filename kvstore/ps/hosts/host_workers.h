#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/mutex.h"
#include "kvstore/job/control/scheduler.h"
#include "kvstore/job/path/job_options.h"
#include "kvstore/job/path/worker_group.h"

namespace telegrad {

// A part of a job's workers as a group: those of a host, or those that push.
// What ends the job ends it, and the other way round. Thread-safe.
class SubGroup : public WorkerGroup {
 public:
  using GatherCall = std::function<absl::StatusOr<std::vector<std::string>>(
      absl::string_view name, absl::string_view payload)>;

  // Servers and the data path are those of `path`, which may be `job`.
  SubGroup(WorkerGroup& job, WorkerGroup& path, Membership membership,
           GatherCall gather);

  const Membership& membership() const override { return membership_; }
  const JobOptions& options() const override { return path_.options(); }
  const DataPath& data_path() const override { return path_.data_path(); }
  absl::StatusOr<std::vector<std::string>> Gather(
      absl::string_view name, absl::string_view payload) override {
    return gather_(name, payload);
  }
  void SuspectPeer(NodeId peer, absl::string_view why) override {
    path_.SuspectPeer(peer, why);
  }
  void SetStep(int64_t) override {}
  void Fail(const absl::Status& why) override { job_.Fail(why); }
  void OnFailure(std::function<void(const absl::Status&)> listener) override;
  void Leave() override {
    if (&path_ != &job_) path_.Leave();
  }

  void Deliver(const absl::Status& why);  // the job has failed

 private:
  WorkerGroup& job_;
  WorkerGroup& path_;
  const Membership membership_;
  const GatherCall gather_;
  Mutex mutex_;  // held while the listener runs
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  std::function<void(const absl::Status&)> listener_ ABSL_GUARDED_BY(mutex_);
};

// The workers of this worker's host, of which the plan says which one pushes.
// They are a job of their own, on loopback, whose scheduler runs beside that
// one and in which each has a part of the sums. Who died is named by the whole
// job, if it says so in time.
class HostWorkers {
 public:
  // All workers of the job call it, whose plan has pushers. Errors end the job.
  static absl::StatusOr<std::unique_ptr<HostWorkers>> Join(WorkerGroup& job,
                                                           int num_threads);
  // The whole job's group waits for the others of the host to leave.
  ~HostWorkers();

  bool pushes() const { return pushers_ != nullptr; }
  // By their hosts; null where another worker pushes.
  WorkerGroup* pushers() { return pushers_.get(); }
  // The job as the store of a worker sees it for which another worker pushes:
  // it only reads. Whoever gathers there hears itself alone.
  WorkerGroup* reader() { return reader_.get(); }
  // The one that pushes is the first; null where it is alone.
  WorkerGroup* host() { return host_.get(); }
  // The place of a worker's host among the pushers, and of the worker on its
  // host. `rank` is of the job.
  int HostOf(int rank) const;
  int PlaceOf(int rank) const;

  // All workers of the host call it. `call` runs on the one that pushes; the
  // others take part in what its group gathers, and get what it tells by
  // `tell`, in order. All have its status.
  using Tell = std::function<absl::Status(const std::string& text)>;
  absl::Status Together(const std::function<absl::Status(const Tell&)>& call,
                        const Tell& hear);

 private:
  explicit HostWorkers(WorkerGroup& job) : job_(job) {}
  absl::Status JoinHost(int num_threads);
  // The group of those that push, or that of a worker that reads.
  void MakePushers();
  absl::StatusOr<std::vector<std::string>> GatherHost(
      absl::string_view name, absl::string_view payload);
  absl::StatusOr<std::vector<std::string>> GatherPushers(
      absl::string_view name, absl::string_view payload);
  absl::Status Say(absl::string_view text);
  absl::Status Follow(const Tell& hear);
  void OnJobFailure(const absl::Status& why);
  void OnHostFailure(const absl::Status& why);
  void HearJob();
  // Why one of the two jobs fails, once it does: what the whole job says, or,
  // where it says nothing in time, the host's reason, which then ends it. OK:
  // this worker leaves.
  absl::Status AwaitVerdict();

  WorkerGroup& job_;
  std::vector<int> ranks_;  // this host's workers
  struct HostJob;
  std::shared_ptr<HostJob> own_;  // null: this worker is alone
  WorkerGroup* joined_ = nullptr;
  std::unique_ptr<SubGroup> host_;
  std::unique_ptr<SubGroup> pushers_;
  std::unique_ptr<SubGroup> reader_;
  Mutex mutex_;
  CondVar changed_;
  absl::Status job_failure_ ABSL_GUARDED_BY(mutex_);
  absl::Status host_failure_ ABSL_GUARDED_BY(mutex_);
  bool is_leaving_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread watcher_;  // ends one job when the other has failed
};

}  // namespace telegrad
