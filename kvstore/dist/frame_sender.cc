#include "kvstore/dist/frame_sender.h"

#include <queue>
#include <utility>

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

  void Pump() {
    while (transport != nullptr && !waiting.empty() &&
           in_flight_bytes < window_bytes) {
      OutgoingFrame frame = std::move(const_cast<Entry&>(waiting.top()).frame);
      waiting.pop();
      const size_t bytes = kFrameHeaderBytes + frame.payload.size;
      in_flight_bytes += bytes;
      const absl::Status sent = transport->Send(
          endpoint, {frame.header.data(), frame.header.size()}, frame.payload,
          [self = shared_from_this(), bytes, on_sent = std::move(frame.on_sent),
           keep = std::move(frame.keep_alive)](const absl::Status&) {
            self->in_flight_bytes -= bytes;
            if (on_sent) on_sent();
            self->Pump();
          });
      // A closed endpoint: its loss is reported by OnClosed, once.
      if (!sent.ok()) {
        waiting = {};
        return;
      }
    }
  }
};

FrameSender::FrameSender(TransportContext* transport, EndpointId endpoint,
                         size_t window_bytes)
    : core_(std::make_shared<Core>()) {
  core_->transport = transport;
  core_->endpoint = endpoint;
  core_->window_bytes = window_bytes;
}

FrameSender::~FrameSender() {
  core_->transport = nullptr;
  core_->waiting = {};
}

void FrameSender::Enqueue(OutgoingFrame frame) {
  core_->waiting.push({std::move(frame), core_->next_sequence++});
  core_->Pump();
}

}  // namespace telegrad
