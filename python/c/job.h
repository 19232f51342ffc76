#pragma once

#include <atomic>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "kvstore/collective/collective.h"
#include "kvstore/dist_options.h"
#include "kvstore/job/control/cancellation.h"
#include "kvstore/job/control/scheduler.h"
#include "kvstore/job/path/worker_group.h"
#include "kvstore/kvstore.h"
#include "kvstore/metrics.h"
#include "python/c/status.h"

// What this process does in a job. In order of use: Start, then Join as a
// worker or Serve, then Close. Thread-safe but for Start and Close.
struct telegrad_job {
 public:
  // Owns copies of all that the options point to.
  static absl::Status Start(const telegrad_job_options& options,
                            std::unique_ptr<telegrad_job>* job);
  ~telegrad_job();

  absl::Status Join();
  // Joins the epoch in which an elastic job goes on, once the one before is
  // over and nothing of it is left.
  absl::Status CheckCanReconfigure() const;
  absl::Status Reconfigure();
  // The job's end: OK, or why it failed; nullopt: not by then.
  std::optional<absl::Status> Serve(telegrad::TimePoint deadline);
  void Fail(telegrad::ExitCode code, const std::string& message);
  // Ends what is still there after the deadline.
  absl::Status Close(telegrad::TimePoint deadline);

  // Null before Join.
  telegrad::WorkerGroup* group() const { return joined_; }
  // What the parts of this process wait for, in words; "" before that takes
  // long. Who asks says it; else it is logged.
  std::string WaitsFor() const;
  const telegrad::DistOptions& options() const { return options_; }
  const std::string& address() const { return options_.scheduler_address; }
  const telegrad::Metrics& metrics() const { return metrics_->registry(); }
  const std::string& metrics_address() const { return metrics_address_; }
  int role() const { return role_; }
  const std::shared_ptr<telegrad::c::Verdict>& verdict() const {
    return verdict_;
  }
  const telegrad::c::Owner& owner() const { return owner_; }
  // Of sums of its groups where a call says nothing.
  telegrad::CollectiveAlgorithm allreduce() const { return allreduce_; }
  // All workers make groups in the same order.
  int NextGroup() { return num_groups_++; }
  // One store is a member of the group.
  bool TakeStorePlace() { return !has_store_.exchange(true); }
  void GiveStorePlaceBack() { has_store_ = false; }  // no store was made
  // Whether others have died, or do within a second or so, and an elastic job
  // goes on.
  bool AwaitsEpoch() const;
  // What is made in an epoch has it, until it is closed.
  std::shared_ptr<const bool> InUse() const { return in_use_; }

 private:
  struct Setup;
  struct Waiting {
    telegrad::Mutex mutex;
    bool is_asked_for ABSL_GUARDED_BY(mutex) = false;
    std::string text ABSL_GUARDED_BY(mutex);
  };
  telegrad_job() = default;
  // Is a worker of that group, or of none.
  absl::Status Enter(
      absl::StatusOr<std::unique_ptr<telegrad::WorkerGroup>> group);
  absl::Status StartMetrics(const telegrad_job_options& options);
  absl::Status StartScheduler(const Setup& setup);
  void StartServer(int rank);
  // Until `deadline`; whether it has ended.
  bool PartsHaveEnded(telegrad::TimePoint deadline);

  telegrad::c::Owner owner_;
  std::shared_ptr<telegrad::c::Verdict> verdict_ =
      std::make_shared<telegrad::c::Verdict>();
  const std::shared_ptr<Waiting> waiting_ = std::make_shared<Waiting>();
  const std::shared_ptr<telegrad::Cancellation> cancellation_ =
      std::make_shared<telegrad::Cancellation>();
  // Outlives all parts.
  std::unique_ptr<telegrad::ProcessMetrics> metrics_;
  std::string metrics_address_;
  telegrad::DistOptions options_;
  telegrad::CollectiveAlgorithm allreduce_ =
      telegrad::CollectiveAlgorithm::kAuto;
  int role_ = TELEGRAD_WORKER;
  int worker_rank_ = -1;
  std::atomic<bool> has_store_{false};
  const std::shared_ptr<const bool> in_use_ = std::make_shared<bool>(true);
  std::atomic<int> num_groups_{0};
  std::unique_ptr<telegrad::Scheduler> scheduler_;
  // How each part on a thread has ended: servers, then the scheduler.
  std::vector<std::future<absl::Status>> parts_;
  std::unique_ptr<telegrad::WorkerGroup> group_;
  std::atomic<telegrad::WorkerGroup*> joined_{nullptr};  // group_, for others
};
