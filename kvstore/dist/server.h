#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/thread_pool.h"
#include "kvstore/dist/frame_sender.h"
#include "kvstore/dist/link_probe.h"
#include "kvstore/dist/members.h"
#include "kvstore/dist/round.h"
#include "transport/handshake.h"

namespace telegrad {

// A server of dist_sync: takes pushes, sums each chunk when all workers' pushes
// are there, answers all. One thread owns the transport and all state; a pool
// checks payloads and sums, and hands results back through Post.
class DistServer : private TransportHandler {
 public:
  explicit DistServer(const ServerOptions& options);
  ~DistServer() override;
  absl::Status Run();

 private:
  struct Session {
    EndpointId endpoint = 0;
    std::unique_ptr<HandshakeServer> handshake;
    std::unique_ptr<FrameSender> sender;
    Buffer handshake_buffer;
    bool is_receiving = false;  // into handshake_buffer
    bool has_challenged = false;
    int worker = -1;  // >= 0 once authenticated
    TimePoint since;
    std::vector<Buffer> discards;  // payloads of duplicates, while they arrive
    // Probes that have not been answered, and where all their payloads go.
    std::shared_ptr<size_t> num_probes = std::make_shared<size_t>(0);
    Buffer probe_buffer;
  };

  // server.cc
  // Over one transport: as it is, and, while connections are open, both by one
  // and by several.
  struct Listener {
    std::unique_ptr<TransportContext> context = {};
    std::unique_ptr<TransportContext> striped = {};
    std::string address = {};
    std::string striped_address = {};
  };
  absl::StatusOr<std::unique_ptr<TransportContext>> ListenOver(
      TransportOptions transport, std::string* address);
  absl::StatusOr<Listener> ListenOver(const TransportOptions& transport,
                                      bool is_open);
  // By each transport that the job may settle on.
  absl::StatusOr<std::vector<Listener>> ListenOverAll(OwnTransports& own);
  absl::Status Start();
  absl::Status MakeChunks();
  absl::Status CheckNetwork() const;
  absl::Status Serve();
  void Post(std::function<void()> job);
  void Sweep();
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
  void SendHandshake(Session& session, FrameType type,
                     absl::string_view message);

  absl::StatusOr<Bytes> JudgeHeader(Session& session, ConstBytes header,
                                    size_t payload_bytes);

  // server_probe.cc: how fast the link is.
  absl::StatusOr<Bytes> BeginProbe(Session& session, const FrameHeader& header);
  void AnswerProbe(Session& session, const FrameHeader& header);

  // server_rounds.cc: what they want.
  absl::Status CheckRoute(const Session& session,
                          const FrameHeader& header) const;
  absl::StatusOr<ChunkRounds*> FindChunk(const FrameHeader& header);
  absl::StatusOr<Bytes> BeginMessage(Session& session,
                                     const FrameHeader& header);
  absl::Status HandleMessage(Session& session, const FrameHeader& header,
                             ConstBytes header_bytes, Bytes payload);
  absl::Status HandleInit(Session& session, ChunkRounds& chunk);
  absl::Status HandlePull(Session& session, const FrameHeader& header,
                          ChunkRounds& chunk);
  absl::Status HandlePropose(Session& session, const FrameHeader& header,
                             ChunkRounds& chunk);
  void CheckPush(int worker, const FrameHeader& header,
                 const FrameHeaderBytes& header_bytes, Bytes payload,
                 ChunkRounds& chunk);
  bool HasFarWorkers() const;  // whose frames need a checksum
  void SumRound(ChunkRounds& chunk, bool is_far);
  void FinishRound(ChunkRounds& chunk, RoundResult result);
  void AnswerPulls(ChunkRounds& chunk);
  void SendToWorker(int worker, const ChunkRounds& chunk, FrameType type,
                    const RoundResult& result);

  const ServerOptions options_;
  JobConfig config_;
  uint64_t epoch_ = 0;
  int rank_ = -1;
  int num_workers_ = 0;
  std::unique_ptr<ControlClient> control_;
  std::unique_ptr<TransportContext> transport_;
  BufferPool buffers_;
  std::vector<std::vector<std::unique_ptr<ChunkRounds>>> chunks_;  // key, index
  std::map<EndpointId, Session> sessions_;
  std::vector<Session*> worker_sessions_;  // by rank, null while absent
  struct LostWorker {
    int rank;
    TimePoint at;
    std::string why;
  };
  std::vector<LostWorker> lost_;
  struct WaitingPull {
    int worker;
    uint64_t step;
    ChunkRounds* chunk;
  };
  std::vector<WaitingPull> waiting_pulls_;
  std::shared_ptr<Buffer> echo_;  // the payload of all echoes
  uint32_t next_sequence_ = 0;
  int64_t num_duplicates_ = 0;
  absl::Status failure_;

  Mutex mutex_;
  std::vector<std::function<void()>> posted_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<ThreadPool> pool_;
};

}  // namespace telegrad
