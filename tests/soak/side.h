#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "transport/transport.h"

namespace telegrad::testing {

// A context that counts what it hears and keeps nothing of it, so that memory
// which grows is the transport's.
class Side : public TransportHandler {
 public:
  // Not OK: context is null.
  explicit Side(const TransportOptions& options) {
    auto made = MakeTransport(options, this);
    status = made.status();
    if (made.ok()) context = *std::move(made);
  }

  void OnAccept(EndpointId endpoint) override {
    open.insert(endpoint);
    last_accepted = endpoint;
    ++num_accepted;
  }
  absl::StatusOr<Bytes> OnHeader(EndpointId from, ConstBytes,
                                 size_t payload_bytes) override {
    std::string& buffer = buffers_[from].emplace_back(payload_bytes, '?');
    return Bytes(buffer.data(), buffer.size());
  }
  void OnMessage(EndpointId from, ConstBytes, Bytes payload) override {
    num_bytes_heard += payload.size;
    ++num_heard;
    buffers_[from].pop_front();
  }
  void OnClosed(EndpointId endpoint, const absl::Status&) override {
    open.erase(endpoint);
    buffers_.erase(endpoint);
    ++num_closed;
  }

  EndpointId Connect(const std::string& address) {
    const auto endpoint = context->Connect(address);
    if (!endpoint.ok()) return 0;
    open.insert(*endpoint);
    return *endpoint;
  }
  bool Send(EndpointId to, std::shared_ptr<const std::string> payload) {
    const absl::Status sent = context->Send(
        to, {"soak", 4}, {payload->data(), payload->size()},
        [this, payload](const absl::Status&) { ++num_completed; });
    num_sent += sent.ok();
    return sent.ok();
  }

  absl::Status status;
  std::set<EndpointId> open;
  EndpointId last_accepted = 0;
  uint64_t num_accepted = 0, num_closed = 0, num_heard = 0;
  uint64_t num_sent = 0, num_completed = 0, num_bytes_heard = 0;

 private:
  std::map<EndpointId, std::deque<std::string>> buffers_;

 public:
  // Last: it goes first, while its buffers are there.
  std::unique_ptr<TransportContext> context;
};

// Drives `sides` until `condition`; false if it does not come true in time.
inline bool DriveSides(const std::vector<Side*>& sides,
                       const std::function<bool()>& condition) {
  const TimePoint deadline = Clock::now() + std::chrono::seconds(30);
  while (!condition()) {
    if (Clock::now() > deadline) return false;
    for (Side* side : sides) {
      side->context->Progress(Clock::now() + std::chrono::microseconds(
                                                 sides.size() == 1 ? 1000 : 0));
    }
  }
  return true;
}

}  // namespace telegrad::testing
