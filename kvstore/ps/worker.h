#pragma once

#include <time.h>

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "base/thread_pool.h"
#include "kvstore/engine/buffer_pool.h"
#include "kvstore/kvstore.h"
#include "kvstore/ps/frame_sender.h"
#include "kvstore/ps/job_config.h"
#include "kvstore/ps/link_probe.h"
#include "kvstore/ps/staleness.h"
#include "kvstore/ps/tensor_table.h"
#include "kvstore/ps/worker_device.h"
#include "kvstore/ps/worker_states.h"
#include "kvstore/ps/worker_tensor.h"
#include "kvstore/ps/worker_times.h"
#include "transport/job/handshake.h"

namespace telegrad {

// A worker of dist_sync or dist_async. Three kinds of threads meet here:
//   callers      PushPull and so on: note the operation, post jobs, return
//   pool         encode, check and decode chunks; nothing blocks in them. What
//                is small is done by the thread that would post it
//   io           owns the transport: sends, receives, nothing else
// A chunk is handed from one to the next through the pool's queue and Post().
// Public methods are thread-safe after Init.
class DistWorker : public KVStore,
                   private CodecControl,
                   private StoreLink,
                   private TransportHandler {
  friend class WorkerDevice;
  friend class WorkerRows;

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
  CodecControl& codecs() override { return *this; }
  StoreLink* link() override { return this; }
  StateAccess* states() override { return &states_; }
  StoreStats stats() const override;
  void Close() override;

  // CodecControl.
  absl::Status SetCodec(Key key, int codec) override;
  PackingMode packing() const override;
  absl::Status SetPacking(PackingMode mode) override;
  std::vector<TensorReport> Report() const override;

  // StoreLink.
  absl::StatusOr<LinkFigures> Measure(Duration at_most) override;
  double load() const override;
  std::string identity() const override;
  std::string transport_details() const override;

 private:
  struct ServerLink {
    EndpointId endpoint = 0;
    std::unique_ptr<HandshakeClient> handshake;
    std::unique_ptr<FrameSender> sender;
    Buffer handshake_buffer;
    bool is_receiving = false;  // into handshake_buffer
    bool is_ready = false;
    bool is_in_memory = false;  // once is_ready
    bool is_lost = false;
    TimePoint lost_at;
    absl::Status lost_why;
  };
  // MeasureLink's.
  struct Measurement {
    bool is_abandoned = false;              // nobody waits; with mutex_
    bool is_over = false;                   // as well
    std::unique_ptr<LinkProbe> probe;       // io thread until the ticket ends
    Buffer payload;                         // of all probes
    std::vector<Buffer> echoes;             // by server, for all of its echoes
    std::vector<ProbeFrame> frames;         // the last, by server
    std::vector<FrameHeaderBytes> headers;  // of these
    std::shared_ptr<Ticket::State> ticket;
  };

  // What servers are told or asked between rounds, and who has answered.
  static constexpr int kAllServers = -1;
  friend class WorkerStates;
  struct Declaration {
    std::string text;
    FrameType answer_type = FrameType::kDeclared;
    Buffer answer;
    std::vector<bool> is_answered;  // by server
    size_t num_left = 0;
    std::shared_ptr<Ticket::State> ticket;
  };

  // worker_join.cc: Init's steps.
  absl::Status CheckInit(std::span<const TensorSpec> tensors,
                         TensorViews values) const;
  absl::Status Open();
  absl::Status Add(std::span<const TensorSpec> tensors, TensorViews values);
  absl::Status AddTensor(const TensorSpec& tensor);
  // Worker 0: sends this to a server, or with kAllServers to all, until they
  // have answered; what the last one said.
  absl::StatusOr<Buffer> Ask(FrameHeader header, std::string text, int server);
  absl::StatusOr<Bytes> OnDeclared(int server, const FrameHeader& header);
  absl::Status Connect();
  void SendHandshake(ServerLink& link, FrameType type,
                     absl::string_view message);
  absl::Status BroadcastValues(size_t first_key, TensorViews values);

  // worker_io.cc: the io thread.
  void RunIo();
  void EndIo();
  void Post(std::function<void()> job);
  void OnAccept(EndpointId endpoint) override;
  absl::StatusOr<Bytes> OnHeader(EndpointId from, ConstBytes header,
                                 size_t payload_bytes) override;
  void OnMessage(EndpointId from, ConstBytes header, Bytes payload) override;
  void OnClosed(EndpointId endpoint, const absl::Status& why) override;
  absl::StatusOr<Bytes> JudgeHeader(int server, ConstBytes header,
                                    size_t payload_bytes);
  void OnHandshake(ServerLink& link, const FrameHeader& header, Bytes payload);
  absl::StatusOr<WorkerChunk*> FindChunk(int server, const FrameHeader& header);
  absl::StatusOr<Bytes> ReplyTarget(WorkerChunk& chunk,
                                    const FrameHeader& header);
  void OnAnswer(const FrameHeader& header, ConstBytes bytes, Bytes payload);
  // Why the job ends, if that is soon known; a server that is lost may have
  // failed it.
  absl::Status VerdictOr(const absl::Status& lost);
  void CheckLostServers();

  // worker_link.cc: how fast the links are.
  absl::StatusOr<std::shared_ptr<Measurement>> MeasureMine(Duration duration);
  std::shared_ptr<Measurement> measurement();
  void SendProbe(const std::shared_ptr<Measurement>& active, size_t server,
                 const ProbeFrame& frame);
  absl::StatusOr<Bytes> BeginEcho(int server, const FrameHeader& header);
  void OnEcho(int server);
  std::vector<size_t> CountedServers() const;

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

  // worker.cc. Fails all operations, now and later: the io thread cuts the
  // connections, and then, when nobody touches callers' memory any more, ends
  // the tickets.
  void FailLocal(const absl::Status& why);
  // FailLocal, and the job ends for all.
  void FailJob(const absl::Status& why);
  absl::Status failure();

  const StoreOptions options_;
  const StoreTraits traits_;
  WorkerGroup& group_;
  const int rank_;
  const int num_workers_;
  const uint64_t epoch_;
  JobConfig config_;  // its tensors are those of the last Init
  std::optional<ShardPlanner> planner_;  // from the first Init on
  std::atomic<PackingMode> packing_{PackingMode::kPlain};
  bool has_open_packing_ = false;  // of any tensor
  std::string transport_details_;

  // Outlive what lies there.
  std::vector<std::unique_ptr<WorkerDevice>> devices_;
  FrameSender::Leaving leaving_;
  std::unique_ptr<TransportContext> transport_;
  std::vector<ServerLink> links_;        // io thread
  std::map<EndpointId, int> server_of_;  // io thread
  absl::Status connect_status_;          // while connecting
  BufferPool buffers_;
  EngineConfig engine_;  // from the first Init on
  TensorTable tensors_;
  std::map<std::string, Key> key_of_;  // Init
  std::atomic<bool> is_stopping_{false};
  std::atomic<bool> has_failed_{false};
  bool is_cutting_ = false;  // io thread: links close because we want it
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
  WorkerStates states_{*this};

  mutable Mutex mutex_;
  // The io thread's while it runs; then what it has used.
  std::optional<clockid_t> io_clock_ ABSL_GUARDED_BY(mutex_);
  double io_cpu_s_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_open_ ABSL_GUARDED_BY(mutex_) = false;
  size_t num_jobs_ ABSL_GUARDED_BY(mutex_) = 0;  // in the pool
  CondVar jobs_changed_;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<Measurement> measurement_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<Declaration> declaration_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::function<void()>> posted_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<ThreadPool> pool_;  // ends before what its jobs use
  std::thread io_thread_;
};

}  // namespace telegrad
