#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "kvstore/kvstore.h"
#include "kvstore/ps/hosts/host_rows.h"
#include "kvstore/ps/hosts/host_workers.h"
#include "kvstore/ps/hosts/pusher_facts.h"
#include "kvstore/ticket_state.h"

namespace telegrad {

// Tier one between processes: the workers of a host sum in its memory, as
// workers of an `allreduce` of their own; the one that pushes hands the sum to
// the second store, whose workers are the hosts, and gives the others what
// comes back. A round is a chain of operations of these stores, which a thread
// moves on. Codecs, their residuals and the statistics are the second store's.
// Of tensors with rows HostRows.
//
// Its caller's memory is not its own to lend: a TierOneStore stands before it,
// which gives it memory of its own until a ticket is done. What is pushed is
// overwritten there by the round's result. Public methods are thread-safe after
// Init.
class HostStore : public KVStore, private StateAccess {
 public:
  // Makes a store of several workers, with one device each, for these.
  using MakeStore = std::function<std::unique_ptr<KVStore>(WorkerGroup& group)>;

  // `first` makes that of the host's workers, `second` that of the hosts.
  HostStore(const StoreOptions& options, const StoreTraits& traits,
            WorkerGroup& job, std::unique_ptr<HostWorkers> workers,
            const MakeStore& first, const MakeStore& second);
  ~HostStore() override;

  const StoreTraits& traits() const override { return traits_; }
  WorkerGroup& group() override { return job_; }
  absl::Status SetCompression(const CompressionConfig& config) override;
  absl::Status SetOptimizer(const OptimizerConfig& config) override;
  absl::StatusOr<std::vector<Key>> Init(std::span<const TensorSpec> tensors,
                                        TensorViews values) override;
  // Push fetches the result, too: a Pull takes it from the host's memory. Not
  // of tensors with rows.
  Ticket PushPull(Key key, TensorViews grads, TensorViews outs,
                  int priority) override;
  Ticket Push(Key key, TensorViews grads, int priority) override;
  Ticket Pull(Key key, TensorViews outs, int priority) override;
  Ticket Broadcast(Key key, int root, TensorViews values,
                   int priority) override;
  CodecControl& codecs() override;
  std::string transport_details() const override {
    return pusher_.transport_details();
  }
  StoreExtras extras() override { return {.states = this}; }
  StoreStats stats() const override;
  void Collect(MetricsPage& page) const override {
    const KVStore* const counts =
        second_ != nullptr ? second_.get() : reader_.get();
    counts != nullptr ? counts->Collect(page) : KVStore::Collect(page);
  }
  void Close() override;

 private:
  // What a chain does next, by the number of steps that it has done.
  using Step = std::function<Ticket()>;
  struct Op {
    std::vector<Step> steps = {};
    size_t num_done = 0;
    Ticket running = {};
    std::shared_ptr<Ticket::State> ticket = nullptr;
  };
  struct Tensor {
    std::string name = {};
    Key first = 0;                             // its key in the first store
    std::unique_ptr<HostRows> rows = nullptr;  // null: it has none
    std::unique_ptr<Op> op = nullptr;
  };
  // A tensor of HostStore as operations begin.
  struct Known {
    Key first = 0;
    HostRows* rows = nullptr;
  };

  // StateAccess: together with the worker that pushes.
  absl::StatusOr<std::string> Save() override;
  absl::Status Load(absl::string_view text) override;
  CodecStates* codec_states() override {
    return second_ == nullptr ? nullptr : second_->states()->codec_states();
  }

  absl::Status Agree(std::span<const TensorSpec> tensors, TensorViews values);
  absl::Status InitSecond(std::span<const TensorSpec> tensors,
                          TensorViews values);
  absl::StatusOr<std::vector<Key>> InitFirst(
      std::span<const TensorSpec> tensors, TensorViews values);
  absl::Status InitReader(std::span<const TensorSpec> tensors);
  Known At(Key key) const;
  Ticket Start(Key key, std::vector<Step> steps);
  void RunChains();

  const StoreOptions options_;
  const StoreTraits traits_;
  WorkerGroup& job_;
  const std::unique_ptr<HostWorkers> workers_;
  const std::unique_ptr<KVStore> first_;   // null: this worker is alone
  const std::unique_ptr<KVStore> second_;  // null: another one pushes
  // Then: pulls rows that hosts have pushed. Connected once some tensor has
  // any.
  const std::unique_ptr<DistWorker> reader_;
  bool reads_ = false;              // Init's
  std::vector<TensorSpec> unread_;  // Init's, until then
  CompressionConfig compression_;
  OptimizerConfig optimizer_;
  PusherCodecs pusher_;
  CompletionQueue done_;  // tags are keys

  mutable Mutex mutex_;
  CondVar ops_changed_;
  std::vector<Tensor> tensors_ ABSL_GUARDED_BY(mutex_);  // by key
  size_t num_ops_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread chains_;
};

}  // namespace telegrad
