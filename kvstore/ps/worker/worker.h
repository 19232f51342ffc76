#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "kvstore/engine/device/buffer_pool.h"
#include "kvstore/kvstore.h"
#include "kvstore/ps/wire/job_config.h"
#include "kvstore/ps/worker/chunk_pipeline.h"
#include "kvstore/ps/worker/server_links.h"
#include "kvstore/ps/worker/server_questions.h"
#include "kvstore/ps/worker/worker_backups.h"
#include "kvstore/ps/worker/worker_codecs.h"
#include "kvstore/ps/worker/worker_device.h"
#include "kvstore/ps/worker/worker_states.h"

namespace telegrad {

// A worker of dist_sync or dist_async, put together of what it does: links to
// servers, with the io thread, questions to them, and a pipeline of chunks.
// Callers' methods note an operation, post jobs, and return. Public methods are
// thread-safe after Init.
class DistWorker : public KVStore, private ServerLinks::Receiver {
 public:
  // `group` outlives it.
  DistWorker(const StoreOptions& options, const StoreTraits& traits,
             WorkerGroup& group);
  ~DistWorker() override;

  const StoreTraits& traits() const override { return traits_; }
  WorkerGroup& group() override { return group_; }

  absl::Status SetCompression(const CompressionConfig& config) override;
  absl::Status SetOptimizer(const OptimizerConfig& config) override;
  absl::StatusOr<std::vector<Key>> Init(std::span<const TensorSpec> tensors,
                                        TensorViews values) override;
  using KVStore::Pull;
  using KVStore::Push;
  using KVStore::PushPull;
  Ticket PushPull(Key key, TensorViews grads, TensorViews outs,
                  int priority) override;
  Ticket Push(Key key, TensorViews grads, int priority) override;
  Ticket Pull(Key key, TensorViews outs, int priority) override;
  Ticket Broadcast(Key key, int root, TensorViews values,
                   int priority) override;
  // For a worker that only reads: marks `key` as having a value, which the
  // worker that pushes for it has set.
  void Follow(Key key) { tensors_[key].turns.Follow(); }
  CodecControl& codecs() override { return codecs_; }
  std::string transport_details() const override { return links_.details(); }
  StoreExtras extras() override {
    return {.states = &states_,
            .backups = options_.drop_slowest > 0 ? &backups_ : nullptr};
  }
  StoreStats stats() const override;
  void Collect(MetricsPage& page) const override;
  void Close() override;

  // ServerLinks::Receiver.
  absl::StatusOr<Bytes> OnHeader(int server,
                                 const FrameHeader& header) override;
  void OnFrame(const FrameHeader& header, ConstBytes header_bytes,
               Bytes payload) override;
  void OnEnd() override;

 private:
  // Init's steps.
  absl::Status CheckInit(std::span<const TensorSpec> tensors,
                         TensorViews values) const;
  absl::Status Open();
  absl::Status Add(std::span<const TensorSpec> tensors, TensorViews values);
  absl::Status AddTensor(const TensorSpec& tensor);
  absl::Status BroadcastValues(size_t first_key, TensorViews values);

  const StoreOptions options_;
  const StoreTraits traits_;
  WorkerGroup& group_;
  const int rank_;
  const int num_workers_;  // workers that push
  JobConfig config_;       // its tensors are those of the last Init
  std::optional<ShardPlanner> planner_;  // from the first Init on

  const std::shared_ptr<FlightRecorder> recorder_;
  WorkerFailure failure_;
  ChunkPipeline pipeline_;
  // Outlive what lies there.
  std::vector<std::unique_ptr<WorkerDevice>> devices_;
  BufferPool buffers_;
  EngineConfig engine_;  // from the first Init on
  TensorTable tensors_;
  std::map<std::string, Key> key_of_;  // Init
  std::atomic<bool> is_stopping_{false};
  ServerLinks links_;
  ServerQuestions questions_;
  WorkerCodecs codecs_;
  WorkerBackups backups_;
  WorkerStates states_;
  mutable Mutex mutex_;  // guards devices_
};

}  // namespace telegrad
