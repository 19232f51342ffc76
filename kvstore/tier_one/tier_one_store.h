#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "base/thread_pool.h"
#include "kvstore/engine/device/borrowed_memory.h"
#include "kvstore/kvstore.h"
#include "kvstore/nccl/group_store.h"
#include "kvstore/ticket_state.h"

namespace telegrad {

// The devices of one worker before a store that has one device a worker (of
// each host, where workers of one sum first): their
// gradients are summed in float32, in the devices' order, and go on as this
// worker's one; what comes back goes to all. Codecs, their residuals and the
// statistics are the other store's, so that as many bytes leave the process as
// with one device. Jobs of a pool sum, a thread hands results out; of tensors
// on GPUs NCCL does both, in its order, and the first GPU has what goes on.
// Public methods are thread-safe after Init.
class TierOneStore : public KVStore {
 public:
  // `second` has been made for one device, which may be a GPU if `on_gpus`.
  TierOneStore(const StoreOptions& options, std::unique_ptr<KVStore> second,
               bool on_gpus);
  ~TierOneStore() override;

  const StoreTraits& traits() const override { return second_->traits(); }
  WorkerGroup& group() override { return second_->group(); }
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
  CodecControl& codecs() override { return second_->codecs(); }
  std::string transport_details() const override {
    return second_->transport_details();
  }
  StoreExtras extras() override { return second_->extras(); }
  StoreStats stats() const override { return second_->stats(); }
  void Collect(MetricsPage& page) const override { second_->Collect(page); }
  void Close() override;

 private:
  enum class Kind : uint8_t { kPush, kPull, kPushPull, kBroadcast };
  // Who has an operation: GPUs that sum, the other store, GPUs that get it.
  enum class Stage : uint8_t { kSum, kSecond, kSpread };
  // One operation on one tensor.
  struct Op {
    Kind kind = Kind::kPush;
    Key key = 0;
    int root = 0;  // worker that a broadcast is from
    int priority = 0;
    std::vector<std::unique_ptr<BorrowedMemory>> memory = {};  // by device
    bool has_in = false;
    bool has_out = false;
    // Rows that are pushed or pulled: all devices' one after the other, which
    // the other store adds or repeats.
    std::optional<std::vector<int64_t>> rows = {};
    Buffer row_values = {};
    bool is_on_gpus = false;
    std::vector<TensorView> outs = {};  // on GPUs
    std::shared_ptr<Ticket::State> ticket = nullptr;
    // Guarded by mutex_:
    Stage stage = Stage::kSecond;
    Ticket under_way = {};
    bool is_let_go = false;  // no result is wanted
  };
  struct Tensor {
    TensorSpec spec;
    Buffer value;                // what goes to the other store and comes back
    Buffer wide;                 // a device's gradient of 16 bits, if several
    std::optional<Key> on_gpus;  // in gpus_, which has the value
    std::shared_ptr<Op> active;  // guarded by mutex_
  };

  absl::StatusOr<std::vector<Key>> InitOnGpus(
      std::span<const TensorSpec> tensors, TensorViews values);
  Ticket Start(Op op, TensorViews grads, TensorViews outs);
  std::shared_ptr<Op> Lend(Tensor& tensor, Op op, TensorViews grads,
                           TensorViews outs)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Check(const Op& op, TensorViews grads, TensorViews outs) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Begin(Tensor& tensor, const std::shared_ptr<Op>& op);  // on the pool
  void BeginOnGpus(const Tensor& tensor, const std::shared_ptr<Op>& op,
                   TensorViews grads);
  void Follow(const std::shared_ptr<Op>& op, Stage stage, const Ticket& ticket);
  bool Spread(const Tensor& tensor, const std::shared_ptr<Op>& op);
  bool LetGo(Op& op, TimePoint deadline);
  static void Sum(Tensor& tensor, const Op& op);
  // The devices' views of rows into row_values, or back.
  static void CopyRows(const Op& op, bool is_out);
  static void NarrowTo(Bytes out, const Tensor& tensor);
  Ticket HandOn(const Tensor& tensor, const Op& op);
  void RunResults();
  static void HandOut(Tensor& tensor, const Op& op);

  const StoreOptions options_;
  const size_t num_devices_;
  const bool on_gpus_;
  const std::unique_ptr<KVStore> second_;
  OptimizerConfig optimizer_;
  std::unique_ptr<GroupStore> gpus_;  // since tensors there were added
  CompletionQueue done_;              // tags are keys

  mutable Mutex mutex_;
  CondVar ops_changed_;
  std::vector<std::unique_ptr<Tensor>> tensors_ ABSL_GUARDED_BY(mutex_);
  size_t num_ops_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::unique_ptr<ThreadPool> pool_;
  std::thread results_;
};

}  // namespace telegrad
