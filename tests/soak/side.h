#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "transport/transport.h"

namespace telegrad::testing {

// Bytes that follow from the seed alone (splitmix64).
inline std::string Contents(uint64_t seed, size_t num_bytes) {
  std::string text(num_bytes, '\0');
  for (size_t i = 0; i < num_bytes; i += sizeof(seed)) {
    uint64_t word = seed += 0x9e3779b97f4a7c15;
    word = (word ^ word >> 30) * 0xbf58476d1ce4e5b9;
    word = (word ^ word >> 27) * 0x94d049bb133111eb;
    word ^= word >> 31;
    std::memcpy(&text[i], &word, std::min(sizeof(word), num_bytes - i));
  }
  return text;
}

// The header of a Side's message.
struct SoakHeader {
  uint64_t number = 0;  // of its endpoint, from 0
  uint64_t seed = 0;    // of its contents
};

// A context that counts what it hears and keeps nothing of it, so that memory
// which grows is the transport's. Headers and contents of what another Side
// sends are compared with what was sent.
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
  void OnMessage(EndpointId from, ConstBytes header, Bytes payload) override {
    ++num_heard;
    SoakHeader sent;
    bool is_right = header.size == sizeof(sent) &&
                    payload.data == reinterpret_cast<std::byte*>(
                                        buffers_[from].front().data());
    if (is_right) {
      std::memcpy(&sent, header.data, sizeof(sent));
      is_right = sent.number == num_heard_from_[from]++ &&
                 buffers_[from].front() == Contents(sent.seed, payload.size);
    }
    num_wrong += !is_right;
    buffers_[from].pop_front();
  }
  void OnClosed(EndpointId endpoint, const absl::Status&) override {
    open.erase(endpoint);
    buffers_.erase(endpoint);
    num_heard_from_.erase(endpoint);
    num_sent_to_.erase(endpoint);
    ++num_closed;
  }

  EndpointId Connect(const std::string& address) {
    const auto endpoint = context->Connect(address);
    if (!endpoint.ok()) return 0;
    open.insert(*endpoint);
    return *endpoint;
  }
  // A message of so many bytes, unlike all others.
  bool Send(EndpointId to, size_t num_bytes) {
    const SoakHeader header = {num_sent_to_[to], num_sent};
    const auto payload =
        std::make_shared<const std::string>(Contents(header.seed, num_bytes));
    const absl::Status sent = context->Send(
        to, {&header, sizeof(header)}, {payload->data(), payload->size()},
        [this, payload](const absl::Status& result) {
          ++num_completed;
          num_taken += result.ok();
        });
    if (sent.ok()) {
      ++num_sent;
      ++num_sent_to_[to];
    }
    return sent.ok();
  }

  absl::Status status;
  std::set<EndpointId> open;
  EndpointId last_accepted = 0;
  uint64_t num_accepted = 0, num_closed = 0, num_heard = 0;
  uint64_t num_wrong = 0;  // not the next, or not as sent
  uint64_t num_sent = 0, num_completed = 0, num_taken = 0;

 private:
  std::map<EndpointId, std::deque<std::string>> buffers_;
  std::map<EndpointId, uint64_t> num_heard_from_, num_sent_to_;

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
