#pragma once

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "kernels/device_queue.h"
#include "kernels/dispatch.h"
#include "kernels/encode_stats.h"
#include "kvstore/collective/collective.h"
#include "kvstore/kvstore.h"
#include "kvstore/ticket_state.h"

namespace telegrad {

// The devices of one process as the ranks of a collective group: MXNet's
// `nccl`. Views are memory of these devices. Sums are dense, of float32 and the
// group's, in its order; nothing is encoded and no optimizer runs. A gradient
// that is not finite ends the job, where the policy says so. Each device
// has a thread that does one bucket of operations after the other, all in the
// same order: what waits together is summed by one call of the group.
// Public methods are thread-safe after Init.
class GroupStore : public KVStore, private CodecControl {
 public:
  // Backend "nccl" uses the GPUs of the first tensors, or GPUs 0 to num_devices
  // - 1 where these name none; "host" uses so many devices of the CPU, for
  // tests. Without `group` the store is alone.
  GroupStore(const StoreOptions& options, const StoreTraits& traits,
             WorkerGroup* group, const std::string& backend);
  ~GroupStore() override;

  // Unavailable names a GPU, or a library, that is not there; NotFound a
  // backend that is not in this build.
  static absl::Status Check(const std::string& backend, int num_devices);

  const StoreTraits& traits() const override { return traits_; }
  WorkerGroup& group() override { return *group_; }
  absl::Status SetCompression(const CompressionConfig& config) override;
  absl::Status SetOptimizer(const OptimizerConfig& config) override;
  absl::StatusOr<std::vector<Key>> Init(std::span<const TensorSpec> tensors,
                                        TensorViews values) override;
  Ticket PushPull(Key key, TensorViews grads, TensorViews outs,
                  int priority) override;
  Ticket Push(Key key, TensorViews grads, int priority) override;
  Ticket Pull(Key key, TensorViews outs, int priority) override;
  Ticket Broadcast(Key key, int root, TensorViews values,
                   int priority) override;
  CodecControl& codecs() override { return *this; }
  StoreStats stats() const override;  // num_frames: calls of the group
  void Close() override;

  // CodecControl.
  absl::Status SetCodec(Key key, int codec) override;
  std::vector<TensorReport> Report() const override;

 private:
  enum class Kind : uint8_t { kPush, kPull, kPushPull, kBroadcast };
  // One operation on one tensor, which every device's thread takes part in.
  struct Op {
    Kind kind = Kind::kPush;
    Key key = 0;
    int priority = 0;
    std::vector<TensorView> grads = {};  // by device; none: nothing is pushed
    std::vector<TensorView> outs = {};   // by device
    // The store's mutex guards the members below.
    bool has_begun = false;
    bool is_cancelled = false;
    size_t devices_left = 0;
    absl::Status status = {};
    std::shared_ptr<Ticket::State> ticket = nullptr;
  };
  // Operations of one kind; a broadcast goes alone.
  using Bucket = std::vector<std::shared_ptr<Op>>;
  struct Tensor {
    TensorSpec spec = {};
    std::vector<Buffer> values = {};  // float32 by device; its thread's
    uint64_t num_rounds = 0;  // changes while no device runs an operation
    bool has_value = false;   // guarded by mutex_
    std::shared_ptr<Op> active = nullptr;  // guarded by mutex_
  };
  // An operation on one device.
  struct Turn {
    std::shared_ptr<Op> op = nullptr;
    Tensor* tensor = nullptr;
    absl::Status status = {};
  };
  // What a device's thread has.
  struct Rank {
    Device device = {};
    std::unique_ptr<kernels::DeviceQueue> queue = nullptr;
    const kernels::KernelTable* kernels = nullptr;
    Stream stream = {};
    Event copied = {};
    Buffer stats = {};  // memory for kernels, by operation of a bucket
    Buffer seen = {};   // `stats` on the host
    std::unique_ptr<Group> members = nullptr;
    std::deque<Bucket> buckets = {};  // guarded by the mutex
    std::thread thread = {};
  };

  absl::Status Open();
  absl::Status OpenRank(size_t index, const AddressExchange& exchange);
  absl::Status ChoosePlaces(std::span<const TensorSpec> tensors);
  absl::Status CheckSpec(const TensorSpec& spec) const;
  Ticket Start(Kind kind, Key key, TensorViews grads, TensorViews outs,
               int priority);
  bool BeginNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Release(const std::shared_ptr<Op>& op);
  void RunRank(size_t index);
  void RunBucket(size_t index, std::vector<Turn>& turns);
  absl::Status Sum(size_t index, std::span<Turn* const> turns);
  absl::Status GiveResults(size_t index, std::span<Turn* const> turns);
  // What is queued from now on comes after what `before` has been given.
  absl::Status Follow(Rank& rank, Stream before);
  // Until all that was queued has happened on the device.
  absl::Status Await(Rank& rank);
  void EndPart(const std::shared_ptr<Op>& op, const absl::Status& status);

  const StoreOptions options_;
  const StoreTraits traits_;
  const std::string backend_;
  const std::unique_ptr<WorkerGroup> own_group_;
  WorkerGroup* const group_;
  OptimizerConfig optimizer_;                            // before Init
  NonFinitePolicy nonfinite_ = NonFinitePolicy::kError;  // before Init
  std::vector<Device> places_;                           // by rank
  std::set<std::string> names_;                          // Init
  std::vector<std::unique_ptr<Rank>> ranks_;             // by device

  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<std::unique_ptr<Tensor>> tensors_ ABSL_GUARDED_BY(mutex_);
  // What no device has begun, in the order in which it came.
  std::vector<std::shared_ptr<Op>> waiting_ ABSL_GUARDED_BY(mutex_);
  int64_t num_buckets_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_closed_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace telegrad
