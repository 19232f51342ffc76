#pragma once

#include <atomic>
#include <memory>

#include "base/mutex.h"
#include "base/thread_pool.h"
#include "kvstore/kvstore.h"
#include "kvstore/ps/wire/traffic.h"
#include "kvstore/ps/wire/worker_times.h"
#include "kvstore/ps/worker/round_times.h"
#include "kvstore/ps/worker/server_links.h"
#include "kvstore/ps/worker/staleness.h"
#include "kvstore/ps/worker/tensor_table.h"

namespace telegrad {

// Operations on a worker's tensors, chunk by chunk: encoded on the pool, sent
// and answered by the io thread, decoded on the pool. A chunk is one thread's
// at a time; the queues of pool and links hand it on. What is small is done by
// the thread that would post it. Thread-safe from Open on.
class ChunkPipeline {
 public:
  // All outlive it. `engine` and `tensors` may grow until Open, and later
  // between rounds. `recorder` may be null.
  ChunkPipeline(const StoreOptions& options, const StoreTraits& traits,
                WorkerGroup& group, WorkerFailure& failure, ServerLinks& links,
                const EngineConfig& engine, const TensorTable& tensors,
                std::shared_ptr<FlightRecorder> recorder);

  void Open();
  // When the io thread has ended.
  void Close() { pool_ = nullptr; }
  struct Switches {
    std::atomic<bool> counts_traffic{false};  // frames are counted
    std::atomic<bool> takes_all{
        false};  // rounds of pushes wait for all workers
  };
  Switches& switches() { return switches_; }
  // What it knows of StoreStats.
  StoreStats stats() const;
  // What it knows beyond that: by codec, by operation and of tensors.
  void Collect(MetricsPage& page) const;

  Ticket Start(OpKind kind, Key key, TensorViews grads, TensorViews outs,
               int priority);

  // The io thread's: answers, and the end of all operations, when nobody
  // touches callers' memory any more.
  absl::StatusOr<Bytes> OnHeader(int server, const FrameHeader& header);
  void OnAnswer(const FrameHeader& header, ConstBytes bytes, Bytes payload);
  void End(const absl::Status& why);

  // For those who do a part of it: WorkerDevice and WorkerRows.
  WorkerFailure& failure() { return failure_; }
  const WorkerGroup& group() const { return group_; }
  const EngineConfig& engine() const { return engine_; }
  const StoreOptions& options() const { return options_; }
  void CountNonFinite(int64_t count) { num_nonfinite_ += count; }
  // Jobs: counted before they are posted, false after a failure; and ended by
  // themselves. What they capture fits into a std::function.
  bool CountJob();
  void EndJob();
  void PostChunk(WorkerChunk& chunk);
  // The chunk is the io thread's as soon as it is in phase `next`.
  void SendFrame(WorkerChunk& chunk, FrameType type, ConstBytes payload,
                 ChunkPhase next);
  void FinishChunk(WorkerChunk& chunk);

 private:
  // Takes the caller's memory away from an operation that is not done.
  void Release(WorkerTensor& tensor, WorkerOp& op);
  void StartChunks(WorkerTensor& tensor, const std::shared_ptr<WorkerOp>& op);
  void StartPush(WorkerTensor& tensor, WorkerOp& op);
  void RunChunk(WorkerChunk& chunk);
  void EncodeChunk(WorkerChunk& chunk);
  void DecodeChunk(WorkerChunk& chunk);
  absl::Status DecodePayload(WorkerChunk& chunk);
  void OnSent(WorkerChunk& chunk);
  void FinishPart(WorkerTensor& tensor, WorkerOp& op);
  absl::StatusOr<WorkerChunk*> FindChunk(int server,
                                         const FrameHeader& header) const;
  absl::StatusOr<Bytes> ReplyTarget(WorkerChunk& chunk,
                                    const FrameHeader& header);

  const StoreOptions& options_;
  const StoreTraits& traits_;
  WorkerGroup& group_;
  WorkerFailure& failure_;
  ServerLinks& links_;
  const EngineConfig& engine_;
  const TensorTable& tensors_;
  const std::shared_ptr<FlightRecorder> recorder_;
  Switches switches_;
  Traffic pushed_;
  Traffic pulled_;
  RoundTimes times_;
  std::atomic<int64_t> num_nonfinite_{0};
  std::atomic<int64_t> num_frames_{0};
  Staleness staleness_;
  ThreadSeconds codec_time_;
  AnswerTimes answer_times_;

  Mutex mutex_;
  size_t num_jobs_ ABSL_GUARDED_BY(mutex_) = 0;  // in the pool
  CondVar jobs_changed_;
  std::unique_ptr<ThreadPool> pool_;  // ends before what its jobs use
};

}  // namespace telegrad
