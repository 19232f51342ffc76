#pragma once

#include <time.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "kvstore/engine/codec/engine_config.h"
#include "kvstore/job/control/handshake.h"
#include "kvstore/ps/wire/frame_sender.h"
#include "kvstore/ps/worker/worker_failure.h"

namespace telegrad {

// A worker's connections to all servers, and the io thread, which owns them
// from Start on. After a failure it closes them and ends.
class ServerLinks : private TransportHandler {
 public:
  // Whom servers' frames are for. Called by the io thread.
  class Receiver {
   public:
    virtual ~Receiver() = default;
    // Where a frame's payload goes. An error ends the job.
    virtual absl::StatusOr<Bytes> OnHeader(int server,
                                           const FrameHeader& header) = 0;
    virtual void OnFrame(const FrameHeader& header, ConstBytes header_bytes,
                         Bytes payload) = 0;
    // Nothing is sent or received any more.
    virtual void OnEnd() = 0;
  };

  // All outlive it; `recorder` may be null.
  ServerLinks(WorkerGroup& group, WorkerFailure& failure, Receiver& receiver,
              std::shared_ptr<FlightRecorder> recorder = nullptr);
  ~ServerLinks() override;

  // To all servers, until they let us in.
  absl::Status Connect();
  void Start();
  void Join();  // after a failure

  // Any thread: from the io thread's start on, until it has closed all, `job`
  // runs on it. Else nothing becomes of it.
  void Post(std::function<void()> job);
  void Wake();
  double io_cpu_s() const;

  // By the io thread.
  void Send(int server, OutgoingFrame frame);
  // Runs while something is leaving, or is said to arrive.
  BusyClock& busy() { return leaving_.busy(); }
  const BusyClock& busy() const { return leaving_.busy(); }

  // After Connect.
  size_t size() const { return links_.size(); }
  // Whether frames to and from a server need no checksum.
  bool is_unchecked(int server) const { return At(server).is_unchecked; }
  // What they do with memory of a device by themselves; nothing after a
  // failure.
  CardAccess CardsFor(Device device) const;
  const std::string& details() const { return details_; }
  // With epoch, source and destination.
  FrameHeader Addressed(int server, FrameHeader header) const;

 private:
  struct Link {
    EndpointId endpoint = 0;
    std::unique_ptr<HandshakeClient> handshake;
    std::unique_ptr<FrameSender> sender;
    Buffer handshake_buffer;
    bool is_receiving = false;  // into handshake_buffer
    bool has_proved = false;    // who it is
    bool is_ready = false;
    bool is_unchecked = false;  // once is_ready
    // Until then: why the last try failed, and when the next one is due.
    absl::Status refused = {};
    Duration pause = std::chrono::milliseconds(100);
    TimePoint again_at = TimePoint::max();
    void Refuse(int server, const std::string& address,
                const absl::Status& why);
    bool is_lost = false;
    TimePoint lost_at;
    absl::Status lost_why;
  };
  Link& At(int server) { return links_[static_cast<size_t>(server)]; }
  const Link& At(int server) const {
    return links_[static_cast<size_t>(server)];
  }
  absl::Status Reach(int server);  // begins to connect
  absl::Status AwaitReady(TimePoint deadline);
  absl::Status CheckCards() const;
  void Run();
  void End();
  void OnAccept(EndpointId endpoint) override;
  absl::StatusOr<Bytes> OnHeader(EndpointId from, ConstBytes header,
                                 size_t payload_bytes) override;
  void OnMessage(EndpointId from, ConstBytes header, Bytes payload) override;
  void OnClosed(EndpointId endpoint, const absl::Status& why) override;
  absl::StatusOr<Bytes> JudgeHeader(int server, ConstBytes header,
                                    size_t payload_bytes);
  void OnHandshake(int server, const FrameHeader& header, Bytes payload);
  void SendHandshake(int server, FrameType type, absl::string_view message);
  // Why the job ends, if that is soon known; a server that is lost may have
  // failed it.
  absl::Status VerdictOr(const absl::Status& lost);
  void CheckLost();

  WorkerGroup& group_;
  WorkerFailure& failure_;
  Receiver& receiver_;
  const std::shared_ptr<FlightRecorder> recorder_;
  std::string details_;
  FrameSender::Leaving leaving_;
  std::unique_ptr<TransportContext> transport_;
  std::vector<Link> links_;
  std::map<EndpointId, int> server_of_;
  absl::Status connect_status_;  // while connecting
  bool is_cutting_ = false;      // links close because we want it

  mutable Mutex mutex_;
  // The io thread's while it runs; then what it has used.
  std::optional<clockid_t> clock_ ABSL_GUARDED_BY(mutex_);
  double cpu_s_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_open_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::function<void()>> posted_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace telegrad
