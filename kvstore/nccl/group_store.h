#pragma once

#include <memory>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "kvstore/kvstore.h"
#include "kvstore/nccl/group_device.h"
#include "kvstore/nccl/group_op.h"
#include "kvstore/nccl/group_schedule.h"

namespace telegrad {

// The devices of one process as the ranks of a collective group: MXNet's
// `nccl`. Views are memory of these devices. Sums are dense, of float32 and the
// group's, in its order; nothing is encoded and no optimizer runs. A gradient
// that is not finite ends the job, where the policy says so. Each device
// has a thread that queues one bucket of operations after the other, all in the
// same order: what waits together is summed by one call of the group. Public
// methods are thread-safe after Init.
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
  // The result of a tensor on the first device, float32: the caller's between
  // its operations. Spread gives what is there to all devices and to `outs`.
  TensorView first(Key key) const;
  Ticket Spread(Key key, TensorViews outs, int priority);
  CodecControl& codecs() override { return *this; }
  StoreStats stats() const override;  // num_frames: calls of the group
  void Close() override;

  // CodecControl.
  absl::Status SetCodec(Key key, int codec) override;
  std::vector<TensorReport> Report() const override;

 private:
  // A device, and the thread that has it.
  struct Worker {
    GroupSchedule* schedule = nullptr;
    size_t index = 0;
    std::unique_ptr<GroupDevice> device = nullptr;
    std::thread thread = {};
  };

  absl::Status Open();
  absl::Status ChoosePlaces(std::span<const TensorSpec> tensors);
  absl::Status CheckSpec(const TensorSpec& spec) const;
  Ticket Start(GroupKind kind, Key key, TensorViews grads, TensorViews outs,
               int priority);
  absl::StatusOr<GroupTensor*> FindTensor(Key key);
  std::shared_ptr<GroupOp> MakeOp(GroupTensor& tensor) const;
  void Run(Worker& worker);

  const StoreOptions options_;
  const StoreTraits traits_;
  const std::string backend_;
  const std::unique_ptr<WorkerGroup> own_group_;
  WorkerGroup* const group_;
  OptimizerConfig optimizer_;                            // before Init
  NonFinitePolicy nonfinite_ = NonFinitePolicy::kError;  // before Init
  std::vector<Device> places_;                           // by device
  std::set<std::string> names_;                          // Init

  // Devices and what they own outlive who uses them.
  mutable Mutex mutex_;
  GroupSchedule schedule_;
  std::vector<std::unique_ptr<Worker>> workers_;  // by device
  std::vector<std::unique_ptr<GroupTensor>> tensors_ ABSL_GUARDED_BY(mutex_);
  bool is_closed_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace telegrad
