#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/thread_pool.h"
#include "kvstore/engine/buffer_pool.h"
#include "kvstore/kvstore.h"
#include "kvstore/ps/job_config.h"
#include "kvstore/ps/server_links.h"
#include "kvstore/ps/server_questions.h"
#include "kvstore/ps/staleness.h"
#include "kvstore/ps/tensor_table.h"
#include "kvstore/ps/worker_codecs.h"
#include "kvstore/ps/worker_device.h"
#include "kvstore/ps/worker_link.h"
#include "kvstore/ps/worker_states.h"

namespace telegrad {

// A worker of dist_sync or dist_async. Three kinds of threads meet here:
//   callers      PushPull and so on: note the operation, post jobs, return
//   pool         encode, check and decode chunks; nothing blocks in them. What
//                is small is done by the thread that would post it
//   io           owns the transport: sends, receives, nothing else
//   (ServerLinks)
// A chunk is handed from one to the next through the pool's and links' queues.
// Public methods are thread-safe after Init.
class DistWorker : public KVStore, private ServerLinks::Receiver {
  friend class WorkerDevice;
  friend class WorkerRows;
  friend class WorkerStates;

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
  CodecControl& codecs() override { return codecs_; }
  StoreLink* link() override { return &link_; }
  StateAccess* states() override { return &states_; }
  StoreStats stats() const override;
  void Close() override;

  // ServerLinks::Receiver.
  absl::StatusOr<Bytes> OnHeader(int server,
                                 const FrameHeader& header) override;
  void OnFrame(int server, const FrameHeader& header, ConstBytes header_bytes,
               Bytes payload) override;
  void OnEnd() override;

 private:
  // worker_join.cc: Init's steps.
  absl::Status CheckInit(std::span<const TensorSpec> tensors,
                         TensorViews values) const;
  absl::Status Open();
  absl::Status Add(std::span<const TensorSpec> tensors, TensorViews values);
  absl::Status AddTensor(const TensorSpec& tensor);
  absl::Status BroadcastValues(size_t first_key, TensorViews values);

  // worker_io.cc: answers.
  absl::StatusOr<WorkerChunk*> FindChunk(int server, const FrameHeader& header);
  absl::StatusOr<Bytes> ReplyTarget(WorkerChunk& chunk,
                                    const FrameHeader& header);
  void OnAnswer(const FrameHeader& header, ConstBytes bytes, Bytes payload);

  // worker_ops.cc: operations, the pool's jobs, and what is in the frames.
  Ticket Start(OpKind kind, Key key, TensorViews grads, TensorViews outs,
               int priority);
  // Takes the caller's memory away from an operation that is not done.
  void Release(WorkerTensor& tensor, WorkerOp& op);
  void StartChunks(WorkerTensor& tensor, const std::shared_ptr<WorkerOp>& op);
  void StartPush(WorkerTensor& tensor, WorkerOp& op);
  // Jobs of the pool: counted before they are posted, false after a failure;
  // and ended by themselves. What they capture fits into a std::function.
  bool CountJob();
  void EndJob();
  void PostChunk(WorkerChunk& chunk);
  void RunChunk(WorkerChunk& chunk);
  void EncodeChunk(WorkerChunk& chunk);
  void DecodeChunk(WorkerChunk& chunk);
  absl::Status DecodePayload(WorkerChunk& chunk);
  FrameHeader MakeHeader(const WorkerChunk& chunk, FrameType type) const;
  void SendFrame(WorkerChunk& chunk, FrameHeader header, ConstBytes payload,
                 ChunkPhase next);
  void OnSent(WorkerChunk& chunk);
  void FinishChunk(WorkerChunk& chunk);
  void FinishPart(WorkerTensor& tensor, WorkerOp& op);

  const StoreOptions options_;
  const StoreTraits traits_;
  WorkerGroup& group_;
  const int rank_;
  const int num_workers_;
  JobConfig config_;  // its tensors are those of the last Init
  std::optional<ShardPlanner> planner_;  // from the first Init on

  // Outlive what lies there.
  std::vector<std::unique_ptr<WorkerDevice>> devices_;
  BufferPool buffers_;
  EngineConfig engine_;  // from the first Init on
  TensorTable tensors_;
  std::map<std::string, Key> key_of_;  // Init
  std::atomic<bool> is_stopping_{false};
  std::atomic<bool> counts_traffic_{false};
  std::atomic<int64_t> push_raw_bytes_{0};
  std::atomic<int64_t> push_wire_bytes_{0};
  std::atomic<int64_t> pull_raw_bytes_{0};
  std::atomic<int64_t> pull_wire_bytes_{0};
  std::atomic<int64_t> num_nonfinite_{0};
  std::atomic<int64_t> num_frames_{0};
  Staleness staleness_;
  ThreadSeconds codec_time_;
  AnswerTimes answer_times_;

  WorkerFailure failure_;
  ServerLinks links_;
  ServerQuestions questions_;
  WorkerLink link_;
  WorkerCodecs codecs_;
  WorkerStates states_{*this};

  mutable Mutex mutex_;
  size_t num_jobs_ ABSL_GUARDED_BY(mutex_) = 0;  // in the pool
  CondVar jobs_changed_;
  std::unique_ptr<ThreadPool> pool_;  // ends before what its jobs use
};

}  // namespace telegrad
