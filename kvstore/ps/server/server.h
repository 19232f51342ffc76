#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/thread_pool.h"
#include "kvstore/job/control/handshake.h"
#include "kvstore/job/path/data_path.h"
#include "kvstore/ps/server/ledger.h"
#include "kvstore/ps/server/served_tensors.h"
#include "kvstore/ps/server/server_metrics.h"
#include "kvstore/ps/server/server_timeline.h"
#include "kvstore/ps/wire/frame_sender.h"
#include "kvstore/server.h"
#include "transport/greeting.h"

namespace telegrad {

// A server: takes pushes, sums each chunk when all workers' pushes are there,
// or steps its weights with each (dist_async), and answers. One thread owns the
// transport and all state; a pool checks payloads and sums, and hands results
// back through Post.
class DistServer : private TransportHandler, private AnswerSink {
 public:
  // Where the job goes on without some members `kept`, which may be null, has
  // what the next server of this process goes on with.
  explicit DistServer(const ServerOptions& options,
                      KeptWeights* kept = nullptr);
  ~DistServer() override;
  absl::Status Run();

  // What Run does, for who gives it a job and a path and has its thread: once
  // Open, which returns where it listens, then turns, each until something has
  // happened or the deadline; an error is why it ends. Sweep looks at those who
  // are silent or have left.
  absl::StatusOr<std::string> Open(std::unique_ptr<Job> control, DataPath path);
  absl::Status Turn(TimePoint deadline);
  void Sweep();

 private:
  struct Session {
    EndpointId endpoint = 0;
    std::unique_ptr<HandshakeServer> handshake;
    std::unique_ptr<FrameSender> sender;
    Buffer handshake_buffer;
    bool is_receiving = false;  // into handshake_buffer
    bool has_challenged = false;
    int worker = -1;               // >= 0 once authenticated
    bool is_unchecked = false;     // then: DataPath::IsUnchecked
    std::vector<Buffer> discards;  // payloads of duplicates, while they arrive
    Buffer declaration;            // while it arrives
  };

  // server.cc
  absl::Status Start();
  // New tensors.
  absl::StatusOr<Bytes> BeginDeclaration(Session& session,
                                         const FrameHeader& header);
  absl::Status HandleDeclaration(Session& session, const FrameHeader& header,
                                 ConstBytes payload);
  absl::Status AnswerState(Session& session, const FrameHeader& header);
  void Tell(Session& session, FrameType type, std::string text);
  void Collect(MetricsPage& page) const;
  absl::Status Serve();
  void Post(std::function<void()> job);
  // The name of a worker, by its place among those that push, or behind them.
  NodeId IdOf(int worker) const {
    return {Role::kWorker, ranks_[static_cast<size_t>(worker)]};
  }
  // Ends the job: a member broke the protocol, or bytes were damaged.
  void Fail(const absl::Status& why);

  // server_sessions.cc: who is there.
  void OnAccept(EndpointId endpoint) override;
  void OnClosed(EndpointId endpoint, const absl::Status& why) override;
  absl::StatusOr<Bytes> OnHeader(EndpointId from, ConstBytes header,
                                 size_t payload_bytes) override;
  void OnMessage(EndpointId from, ConstBytes header, Bytes payload) override;
  absl::Status OnHandshake(Session& session, const FrameHeader& header,
                           absl::string_view message);
  absl::Status Admit(Session& session, const Identity& peer);

  absl::StatusOr<Bytes> JudgeHeader(Session& session, ConstBytes header,
                                    size_t payload_bytes);

  // server_rounds.cc: what they want.
  absl::Status CheckRoute(const Session& session,
                          const FrameHeader& header) const;
  absl::StatusOr<Bytes> BeginMessage(Session& session,
                                     const FrameHeader& header);
  absl::StatusOr<Bytes> BeginPush(Session& session, const FrameHeader& header,
                                  ServedChunk& chunk);
  absl::Status HandleMessage(Session& session, const FrameHeader& header,
                             ConstBytes header_bytes, Bytes payload);
  void HandlePush(Session& session, const FrameHeader& header,
                  ConstBytes header_bytes, Bytes payload, ServedChunk& chunk);
  absl::StatusOr<bool> CheckPush(const ArrivedPush& push);
  void Complete(ServedChunk& chunk);
  void FailPush(const ArrivedPush& push, const absl::Status& why);
  void Send(const Chunk& chunk, const PayloadFormat& format,
            const Answer& answer) override;

  const ServerOptions options_;
  KeptWeights* const kept_;
  ServerTimeline timeline_;
  uint64_t epoch_ = 0;
  int rank_ = -1;
  std::vector<int> ranks_;  // workers that push, then the others
  int num_workers_ = 0;     // workers that push, who are counted
  std::unique_ptr<Job> control_;
  DataPath path_;
  std::shared_ptr<FlightRecorder> recorder_;  // null: nobody asks
  Ledger ledger_;
  FrameSender::Leaving leaving_;
  std::unique_ptr<TransportContext> transport_;
  std::optional<ServedTensors> tensors_;  // jobs point to their chunks
  std::map<EndpointId, Session> sessions_;
  Strangers<EndpointId> strangers_;        // sessions without a proof
  std::vector<Session*> worker_sessions_;  // by rank, null while absent
  struct LostWorker {
    NodeId who;
    TimePoint at;
    std::string why;
  };
  std::vector<LostWorker> lost_;
  // Some worker's frames need a checksum.
  std::atomic<bool> has_far_workers_{false};
  ServerMetrics metrics_;
  Metrics::Registration registration_;
  absl::Status failure_;
  std::vector<std::function<void()>> turn_;  // what Turn has taken of posted_

  Mutex mutex_;
  std::vector<std::function<void()>> posted_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<ThreadPool> pool_;
};

}  // namespace telegrad
