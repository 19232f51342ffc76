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
#include "kvstore/dist/buffer_pool.h"
#include "kvstore/dist/frame_sender.h"
#include "kvstore/dist/job_config.h"
#include "kvstore/dist/link_probe.h"
#include "kvstore/dist/members.h"
#include "kvstore/dist/worker_tensor.h"
#include "transport/handshake.h"

namespace telegrad {

// A worker of dist_sync. Three kinds of threads meet here:
//   callers      PushPull and so on: note the operation, post jobs, return
//   pool         encode, check and decode chunks; nothing blocks in them. What
//                is small is done by the thread that would post it
//   io           owns the transport: sends, receives, nothing else
// A chunk is handed from one to the next through the pool's queue and Post().
// Public methods are thread-safe after Init.
class DistWorker : public KVStore, private TransportHandler {
 public:
  explicit DistWorker(const DistOptions& options);
  ~DistWorker() override;

  absl::Status SetCompression(const CompressionConfig& config) override;
  absl::Status SetOptimizer(const OptimizerConfig& config) override;
  absl::Status Init(std::span<const TensorSpec> tensors,
                    std::span<const Bytes> values) override;
  int rank() const override { return rank_; }
  int num_workers() const override { return num_workers_; }
  int num_servers() const override { return static_cast<int>(links_.size()); }
  Ticket PushPull(Key key, ConstBytes grad, Bytes out, int priority) override;
  Ticket Push(Key key, ConstBytes grad, int priority) override;
  Ticket Pull(Key key, Bytes out, int priority) override;
  absl::StatusOr<std::vector<std::string>> Gather(
      absl::string_view name, absl::string_view payload) override;
  absl::Status SetCodec(Key key, int codec) override;
  PackingMode packing() const override;
  absl::Status SetPacking(PackingMode mode) override;
  absl::StatusOr<LinkFigures> MeasureLink(Duration at_most) override;
  double link_load() const override;
  std::string link_identity() const override;
  Traffic traffic() const override;
  std::vector<TensorReport> Report() const override;
  ServerMachines server_machines() const override;
  absl::StatusOr<std::vector<ServerAbout>> AskServers() override;
  ConnectionChoice connection_choice() const override;
  TransportChoice transport_choice() const override;
  std::string transport_details() const override;
  void SetStep(int64_t step) override;
  void Fail(const absl::Status& why) override;
  void Close() override;

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
    std::unique_ptr<LinkProbe> probe;       // io thread until the ticket ends
    Buffer payload;                         // of all probes
    std::vector<Buffer> echoes;             // by server, for all of its echoes
    std::vector<ProbeFrame> frames;         // the last, by server
    std::vector<FrameHeaderBytes> headers;  // of these
    std::shared_ptr<Ticket::State> ticket;
  };

  // worker_join.cc: Init's steps.
  absl::Status CheckInit(std::span<const TensorSpec> tensors,
                         std::span<const Bytes> values) const;
  absl::Status Join(std::span<const TensorSpec> tensors, bool has_values);
  // On the transport that all members can use.
  absl::Status Settle();
  absl::Status Take(TransportOptions transport);
  absl::Status Open(std::span<const Bytes> values);
  absl::Status MakeTensors();
  absl::Status Connect();
  void SendHandshake(ServerLink& link, FrameType type,
                     absl::string_view message);
  absl::Status BroadcastValues(std::span<const Bytes> values);

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
  static ChunkStage ReplyStage(const WorkerChunk& chunk,
                               const FrameHeader& header);
  absl::StatusOr<Bytes> ReplyTarget(WorkerChunk& chunk,
                                    const FrameHeader& header);
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

  // worker_ops.cc: operations and the pool's jobs; worker_payload.cc: what is
  // in the frames.
  Ticket Start(OpKind kind, Key key, ConstBytes grad, Bytes out, int priority);
  void StartChunks(WorkerTensor& tensor, const std::shared_ptr<WorkerOp>& op);
  void StartPush(WorkerTensor& tensor, const std::shared_ptr<WorkerOp>& op);
  void SendControl(WorkerTensor& tensor, WorkerChunk& chunk, FrameType type,
                   ChunkPhase next);
  void PostJob(int priority, size_t bytes, std::function<void()> job);
  void EncodeChunk(WorkerTensor& tensor, WorkerChunk& chunk);
  static void BeginCodec(const ChunkCoding& coding, ChunkStage stage,
                         WorkerChunk& chunk);
  absl::StatusOr<ConstBytes> EncodePayload(WorkerTensor& tensor,
                                           WorkerChunk& chunk);
  absl::Status AskGuard(const PreparedCodec& codec, ConstBytes grad,
                        ConstBytes payload, float threshold,
                        WorkerChunk& chunk);
  absl::StatusOr<ConstBytes> DensePayload(WorkerTensor& tensor,
                                          WorkerChunk& chunk, ConstBytes grad);
  absl::Status HandleNonFinite(WorkerTensor& tensor, WorkerChunk& chunk,
                               const EncodeStats& stats);
  void SendFrame(WorkerTensor& tensor, WorkerChunk& chunk, FrameHeader header,
                 ConstBytes payload, ChunkPhase next);
  void DecodeChunk(WorkerTensor& tensor, WorkerChunk& chunk);
  absl::Status DecodePayload(WorkerTensor& tensor, WorkerChunk& chunk);
  absl::Status DecodeReply(WorkerChunk& chunk, const FrameHeader& header,
                           ConstBytes header_bytes);
  void FinishChunk(WorkerTensor& tensor, WorkerChunk& chunk);
  void FinishPart(WorkerTensor& tensor, const std::shared_ptr<WorkerOp>& op);
  ChunkStage StageWish(const WorkerChunk& chunk) const;
  FrameHeader MakeHeader(const WorkerChunk& chunk, FrameType type) const;

  // worker.cc. Fails all operations, now and later: the io thread cuts the
  // connections, and then, when nobody touches callers' memory any more, ends
  // the tickets.
  void FailLocal(const absl::Status& why);
  // FailLocal, and the job ends for all.
  void FailJob(const absl::Status& why);
  absl::Status failure();

  const DistOptions options_;
  JobConfig config_;
  int rank_ = -1;
  int num_workers_ = 0;
  uint64_t epoch_ = 0;
  OwnTransports own_ = {};  // from Init on
  std::string transport_details_;

  std::unique_ptr<ControlClient> control_;
  std::unique_ptr<TransportContext> transport_;
  std::vector<ServerLink> links_;        // io thread
  std::map<EndpointId, int> server_of_;  // io thread
  absl::Status connect_status_;          // while connecting
  std::vector<std::unique_ptr<WorkerTensor>> tensors_;
  size_t largest_chunk_bytes_ = 0;
  BufferPool decoded_;  // AskGuard's, as large: one for each thread at most
  std::atomic<uint32_t> next_sequence_{0};
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

  mutable Mutex mutex_;
  // The io thread's while it runs; then what it has used.
  std::optional<clockid_t> io_clock_ ABSL_GUARDED_BY(mutex_);
  double io_cpu_s_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_open_ ABSL_GUARDED_BY(mutex_) = false;
  size_t num_jobs_ ABSL_GUARDED_BY(mutex_) = 0;  // in the pool
  CondVar jobs_changed_;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<Measurement> measurement_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::function<void()>> posted_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<ThreadPool> pool_;  // ends before what its jobs use
  std::thread io_thread_;
};

}  // namespace telegrad
