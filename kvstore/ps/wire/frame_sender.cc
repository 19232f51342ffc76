#include "kvstore/ps/wire/frame_sender.h"

#include <deque>
#include <queue>
#include <utility>
#include <vector>

#include "base/log.h"

namespace telegrad {

struct FrameSender::Core : std::enable_shared_from_this<FrameSender::Core> {
  struct Entry {
    OutgoingFrame frame;
    uint64_t sequence;
    bool operator<(const Entry& other) const {
      if (frame.priority != other.frame.priority) {
        return frame.priority < other.frame.priority;
      }
      return sequence > other.sequence;
    }
  };

  TransportContext* transport = nullptr;  // null once the owner is gone
  EndpointId endpoint = 0;
  size_t window_bytes = 0;
  size_t in_flight_bytes = 0;
  uint64_t next_sequence = 0;
  std::priority_queue<Entry> waiting;
  Leaving* leaving = nullptr;

  static void OnSent(Leaving::Node& node);
  void Pump();
};

void FrameSender::Core::OnSent(Leaving::Node& node) {
  const std::shared_ptr<Core> core = std::move(node.core);
  const std::shared_ptr<const void> keep_alive = std::move(node.keep_alive);
  const std::function<void()> on_sent = std::exchange(node.on_sent, nullptr);
  core->in_flight_bytes -= node.num_bytes;
  core->leaving->free_.push_back(&node);
  core->leaving->busy_.End();
  if (on_sent) on_sent();
  core->Pump();
}

void FrameSender::Core::Pump() {
  while (transport != nullptr && !waiting.empty() &&
         in_flight_bytes < window_bytes) {
    OutgoingFrame frame = std::move(const_cast<Entry&>(waiting.top()).frame);
    waiting.pop();
    if (leaving->free_.empty()) {
      leaving->free_.push_back(&leaving->nodes_.emplace_back());
    }
    Leaving::Node& node = *leaving->free_.back();
    leaving->free_.pop_back();
    node.core = shared_from_this();
    node.num_bytes = kFrameHeaderBytes + frame.payload.size;
    node.keep_alive = std::move(frame.keep_alive);
    node.on_sent = std::move(frame.on_sent);
    in_flight_bytes += node.num_bytes;
    leaving->busy_.Begin();
    if (leaving->recorder_ != nullptr) {
      const FrameHeader header =
          ReadFrameHeader({frame.header.data(), frame.header.size()});
      NoteFrame(leaving->recorder_, header.destination, header, true);
    }
    const absl::Status sent = transport->Send(
        endpoint, {frame.header.data(), frame.header.size()}, frame.payload,
        [&node](const absl::Status&) { OnSent(node); });
    if (sent.ok()) continue;
    // A closed endpoint, whose loss is reported by OnClosed, once; or it cannot
    // go on without this frame.
    if (!absl::IsFailedPrecondition(sent)) {
      LogWarning("closes a connection: ", sent.message());
      transport->Close(endpoint);
    }
    waiting = {};
    node = {};
    leaving->free_.push_back(&node);
    leaving->busy_.End();
    return;
  }
}

FrameSender::FrameSender(TransportContext* transport, EndpointId endpoint,
                         size_t window_bytes, Leaving* leaving)
    : core_(std::make_shared<Core>()) {
  core_->transport = transport;
  core_->endpoint = endpoint;
  core_->window_bytes = window_bytes;
  core_->leaving = leaving;
}

FrameSender::~FrameSender() {
  core_->transport = nullptr;
  core_->waiting = {};
}

void NoteFrame(const std::shared_ptr<FlightRecorder>& recorder, size_t peer,
               const FrameHeader& header, bool is_sent) {
  const bool is_handshake = header.type <= FrameType::kReady;  // nobody's yet
  if (recorder == nullptr || is_handshake) return;
  recorder->Note(peer, {.what = Name(header.type),
                        .step = header.step,
                        .key = header.key,
                        .chunk = header.chunk,
                        .num_bytes = header.payload_bytes,
                        .is_sent = is_sent});
}

void FrameSender::Enqueue(OutgoingFrame frame) {
  core_->waiting.push({std::move(frame), core_->next_sequence++});
  core_->Pump();
}

}  // namespace telegrad
