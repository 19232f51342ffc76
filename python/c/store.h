#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "kvstore/kvstore.h"
#include "kvstore/metrics.h"
#include "kvstore/tuning/auto_compression.h"
#include "python/c/queue.h"
#include "python/c/status.h"
#include "python/c/store_trace.h"
#include "python/c/timeline.h"

// A store as C sees it: lists of keys, one view per key and device.
// Thread-safe but for Init and Close.
struct telegrad_store {
 public:
  // `job` may be null, and outlives the store.
  static absl::Status Create(telegrad_job* job, const char* type,
                             const telegrad_store_options& options,
                             std::unique_ptr<telegrad_store>* store);
  absl::Status SetCompression(const telegrad_compression& compression);
  absl::Status SetOptimizer(const telegrad_optimizer& optimizer);
  // What "auto" has decided, as JSON.
  absl::StatusOr<std::string> AfterStep(const telegrad::StepTimes& times);
  // What "auto" keeps, as JSON; "" while it measures.
  absl::StatusOr<std::string> SaveChoice() const;
  absl::Status LoadChoice(absl::string_view text);
  // Of a tensor that Init adds later.
  void LeaveMomentumOut(const char* name);
  absl::Status Init(int64_t num, const char* const* names,
                    const telegrad_tensor* tensors, const int64_t* row_elems,
                    const float* rates, bool has_values, uint32_t* keys);

  // Starts `start(i)` for each key, and waits where there is no queue.
  struct Call {
    const char* what = "";  // for timelines; a literal
    int64_t num = 0;
    const uint32_t* keys = nullptr;
    telegrad_queue* queue = nullptr;
    uint64_t tag = 0;
  };
  absl::Status Run(const Call& call,
                   const std::function<telegrad::Ticket(size_t)>& start);
  // Of the i-th key; `rows` may be null.
  std::vector<telegrad::TensorView> ViewsOf(const telegrad_tensor* tensors,
                                            const telegrad_rows* rows,
                                            size_t i) const;
  // Of so many keys; `rows` may be null.
  absl::Status CheckTensors(int64_t num, const telegrad_tensor* tensors,
                            const telegrad_rows* rows) const;
  // Notes operations from now on, or no more; gives what was noted as JSON.
  std::string SetTimeline(bool is_on);
  // Cancels what is in flight.
  void Close();

  telegrad::KVStore& store() { return *store_; }
  telegrad::StoreMetrics& metrics() { return *metrics_; }
  const telegrad::c::Verdict* verdict() const { return verdict_.get(); }
  const telegrad::c::Owner& owner() const { return owner_; }

 private:
  absl::Status CheckAuto() const;
  telegrad::AutoOptions AutoOptionsNow() const;

  telegrad::c::Owner owner_;
  std::shared_ptr<telegrad::c::Verdict> verdict_;
  std::shared_ptr<const bool> in_use_;  // of the job; null without one
  telegrad::Timeline timeline_;
  std::unique_ptr<telegrad::KVStore> store_;
  std::unique_ptr<telegrad::StoreMetrics> metrics_;
  telegrad::Duration operation_timeout_ = std::chrono::seconds(300);
  size_t num_devices_ = 1;
  telegrad::Device device_ = {};  // of the last tensor
  int num_threads_ = 1;
  bool has_optimizer_ = false;
  std::set<std::string> without_momentum_;                       // tensors
  std::optional<telegrad::CompressionConfig> auto_compression_;  // of "auto"
  std::unique_ptr<telegrad::AutoCompression> auto_;  // from the first step on
  telegrad::Mutex mutex_;
  // The last operation of each key.
  std::vector<telegrad::Ticket> last_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> names_ ABSL_GUARDED_BY(mutex_);  // by key
  // While the timeline is on.
  std::unique_ptr<telegrad::c::OperationEnds> ends_ ABSL_GUARDED_BY(mutex_);
  // Null without TELEGRAD_TIMELINE.
  std::unique_ptr<telegrad::c::StoreTrace> trace_ ABSL_PT_GUARDED_BY(mutex_);
};
