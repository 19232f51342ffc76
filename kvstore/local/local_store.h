#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/thread_pool.h"
#include "kvstore/engine/codec/chunk_sum.h"
#include "kvstore/engine/codec/shard_plan.h"
#include "kvstore/engine/codec/tensor_codec.h"
#include "kvstore/engine/device/borrowed_memory.h"
#include "kvstore/engine/device/buffer_pool.h"
#include "kvstore/kvstore.h"
#include "kvstore/local/local_devices.h"
#include "kvstore/local/local_states.h"
#include "kvstore/local/updated_weights.h"
#include "kvstore/ticket_state.h"

namespace telegrad {

// The devices of one process, summed and, if asked, updated: MXNet's `local`,
// in one place for all tensors, and `device`, in a place on each device. With
// compression each device has a codec and a residual of its own, as a worker of
// dist_sync has, and what comes out is the same bits.
// The threads of each place work on chunks; nothing else runs. Public methods
// are thread-safe after Init.
class LocalStore : public KVStore, private CodecControl {
 public:
  // Without `group` it is alone. Tensors are dealt out over `num_places`
  // (merge_places.h), each with its share of StoreOptions::num_threads.
  LocalStore(const StoreOptions& options, const StoreTraits& traits,
             WorkerGroup* group, int num_places);
  ~LocalStore() override;

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
  StoreExtras extras() override { return {.states = &states_}; }
  StoreStats stats() const override;
  void Close() override;

  // CodecControl.
  absl::Status SetCodec(Key key, int codec) override;
  std::vector<TensorReport> Report() const override;

 private:
  friend class LocalStates;
  struct Halves {
    bool push = false;
    bool pull = false;
  };
  // One operation on one tensor.
  struct Op {
    Key key = 0;
    Halves halves;
    int priority = 0;
    // Memory that the store has made.
    std::shared_ptr<std::vector<Buffer>> memory;
    std::unique_ptr<LocalLoan> loan;
    std::vector<ChunkWish> wishes;  // by device
    std::atomic<size_t> chunks_left{0};
    absl::Status updated;  // what the updater has said
    std::shared_ptr<Ticket::State> ticket;
  };
  struct Tensor {
    TensorSpec spec;
    ThreadPool* place = nullptr;
    std::vector<std::unique_ptr<TensorCodec>> codecs;  // by device
    std::vector<ChunkSum> sums;                        // by chunk
    std::vector<ChunkResult> results;                  // the last, by chunk
    std::unique_ptr<UpdatedWeights> weights;  // null without an updater
    bool is_on_device = false;   // any of its views; others are in host memory
    bool has_value = false;      // guarded by mutex_
    uint64_t rounds = 0;         // guarded by mutex_
    std::shared_ptr<Op> active;  // guarded by mutex_
  };

  absl::Status CheckInit(std::span<const TensorSpec> tensors,
                         TensorViews values) const;
  absl::Status AddTensor(const TensorSpec& spec, size_t place);
  Ticket Start(Key key, Halves halves, TensorViews grads, TensorViews outs,
               int priority,
               std::shared_ptr<std::vector<Buffer>> memory = nullptr);
  Ticket OnRows(Key key, Halves halves, TensorViews views, int priority);
  // On the pool; of tensors that lie on devices on a thread of its own.
  void RunOnDevices(Tensor& tensor, const std::shared_ptr<Op>& op);
  absl::Status PushOnDevices(Tensor& tensor, Op& op,
                             std::span<const BorrowedMemory::Use> uses);
  void Begin(Tensor& tensor, const std::shared_ptr<Op>& op);
  void RunChunk(Tensor& tensor, const std::shared_ptr<Op>& op, size_t chunk);
  void StepAndPull(Tensor& tensor, Op& op);
  absl::Status PushChunk(Tensor& tensor, const Op& op, size_t index,
                         std::span<const BorrowedMemory::Use> uses);
  absl::Status PullChunk(Tensor& tensor, size_t index,
                         std::span<const BorrowedMemory::Use> uses);
  void Finish(Tensor& tensor, const std::shared_ptr<Op>& op);
  absl::Status failure() const;

  const StoreOptions options_;
  const StoreTraits traits_;
  const size_t header_bytes_;  // a frame's header, which counted bytes include
  LocalStates states_{*this};
  const std::unique_ptr<WorkerGroup> own_group_;
  WorkerGroup* const group_;
  BufferPool buffers_;
  LocalDevices devices_;
  EngineConfig config_;
  std::optional<ShardPlanner> planner_;  // from the first Init on
  std::map<std::string, Key> key_of_;
  std::vector<size_t> loads_;  // elements, by place

  std::atomic<int64_t> push_raw_bytes_{0};
  std::atomic<int64_t> push_wire_bytes_{0};
  std::atomic<int64_t> pull_raw_bytes_{0};
  std::atomic<int64_t> pull_wire_bytes_{0};
  std::atomic<int64_t> num_nonfinite_{0};

  mutable Mutex mutex_;
  CondVar ops_changed_;
  std::vector<std::unique_ptr<Tensor>> tensors_ ABSL_GUARDED_BY(mutex_);
  size_t num_ops_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_closed_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  // They end before what their jobs use.
  std::vector<std::unique_ptr<ThreadPool>> places_;
  std::unique_ptr<ThreadPool> device_pool_;  // has one thread; Init makes it
};

}  // namespace telegrad
