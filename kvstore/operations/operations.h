#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "kvstore/collective/collective.h"
#include "kvstore/operations/devices.h"
#include "kvstore/operations/queue.h"
#include "kvstore/operations/tuner.h"

namespace telegrad {
class KVStore;
}  // namespace telegrad

// Asynchronous operations as Horovod's, over a group. docs/operations.md.
namespace telegrad::operations {

class Negotiation;
class Runner;

struct Options {
  int64_t fusion_bytes = int64_t{64} << 20;  // equal on all ranks
  int cache_capacity = 1024;                 // equal on all ranks
  Duration cycle = std::chrono::milliseconds(1);
  // 0: never.
  Duration stall_warning = std::chrono::seconds(60);
  Duration stall_deadline = {};
  std::string timeline = {};  // a file; "": none
  bool marks_cycles = false;  // the timeline has them, too
  TuningOptions tuning = {};
  // How long a process set waits for all ranks.
  Duration timeout = std::chrono::seconds(300);
  // How groups of GPUs are made, for arrays there: as `world` was, but by
  // `device_backend`.
  GroupOptions device_group = {};
  std::string device_backend = "nccl";
};

// The operations of one rank. Thread-safe; a thread of its own negotiates with
// the other ranks' and runs what is ready, in the same order on all.
class Operations {
 public:
  // All ranks of `world`, which nobody else uses.
  static absl::StatusOr<std::unique_ptr<Operations>> Make(
      std::unique_ptr<Group> world, const Options& options);
  // Agrees with the others on the end: what is under way ends with an error
  // that names this rank.
  ~Operations();

  int rank() const { return rank_; }
  // Seconds so far in which its thread agreed with others' on requests, what it
  // waited for their messages included, but not what it ran.
  double agreeing_s() const {
    return static_cast<double>(agreeing_ns_.load()) * 1e-9;
  }
  // What this rank can see to be wrong is refused. The memory is the
  // operation's until it is done. Its `out` is null or has the result's size.
  absl::StatusOr<int64_t> Submit(std::shared_ptr<Submission> submission);
  // For what comes behind: Poll, Wait, Result, Release, Cancel.
  Queue& queue() { return queue_; }

  // For requests with a codec: of the type "allreduce", of the same workers; it
  // makes keys of their names. Each rank calls it once, before its first one.
  absl::Status UseStore(std::shared_ptr<KVStore> store);

  // This rank's trace goes into `path`, of rank 2 with ".2" behind it, when it
  // is stopped or the operations end. FailedPrecondition: one is going on, or
  // none. The file's own error.
  absl::Status StartTimeline(const std::string& path, bool marks_cycles);
  absl::Status StopTimeline();

  // Numbers of process sets count from 1. All ranks call it with the same
  // ranks, which rise. Waits for all.
  absl::StatusOr<int> AddProcessSet(const std::vector<int>& ranks);
  absl::Status RemoveProcessSet(int set);

 private:
  Operations(std::unique_ptr<Group> world, const Options& options);
  absl::Status CompareOptions();
  absl::StatusOr<int64_t> Change(Request request);
  void Run();
  // One negotiation, and what comes of it. `is_busy`: somebody told something.
  absl::Status Cycle(Duration patience, bool* is_busy);
  absl::StatusOr<std::vector<std::string>> ExchangeRequests(
      const std::vector<uint64_t>& notices, size_t size);
  absl::Status RunDue(std::vector<struct Response> due);
  // What rank 0 has told by `first_word`.
  void HearChoice(uint64_t first_word);
  void Tune();
  void LookForStalls();

  const Options options_;
  const int rank_;
  const int world_size_;
  Devices devices_;  // results are in their memory
  Queue queue_;
  std::atomic<bool> is_stopping_{false};
  std::atomic<int64_t> agreeing_ns_{0};
  Mutex mutex_;
  std::map<int, std::vector<int>> sets_ ABSL_GUARDED_BY(mutex_);
  std::string timeline_ ABSL_GUARDED_BY(mutex_);  // a file; "": none
  std::atomic<bool> marks_cycles_{false};
  // The thread's.
  Setting setting_;
  uint64_t told_choice_ = 0;      // flags of the next notice
  std::unique_ptr<Tuner> tuner_;  // rank 0's, while it looks
  std::unique_ptr<Negotiation> negotiation_;
  std::unique_ptr<Runner> runner_;
  std::vector<uint64_t> notices_;  // all ranks'
  TimePoint next_look_;
  std::map<std::pair<int, std::string>, TimePoint> next_warnings_;
  std::thread thread_;
};

}  // namespace telegrad::operations
