#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "transport/transport.h"

namespace telegrad::testing {

// Bytes that tell places and seeds apart; they repeat after 2^19.
inline std::string Pattern(size_t num_bytes, uint32_t seed = 0) {
  constexpr size_t kPeriod = size_t{1} << 19;
  std::string text(std::min(num_bytes, kPeriod), '\0');
  for (size_t i = 0; i < text.size(); ++i) {
    text[i] = static_cast<char>((i * 2654435761u + seed * 40503u) >> 11);
  }
  while (text.size() < num_bytes) {
    text.append(text, 0, num_bytes - text.size());
  }
  return text;
}

struct Heard {
  EndpointId from = 0;
  std::string header;
  std::string payload;
  Device device = {};  // of the payload
};

// A context that writes down what it hears.
class Node : public TransportHandler {
 public:
  // Not OK: context is null.
  explicit Node(const TransportOptions& options,
                const TransportFactory& make = MakeTransport) {
    auto made = make(options, this);
    status = made.status();
    if (made.ok()) context = *std::move(made);
  }

  void OnAccept(EndpointId endpoint) override { accepted.push_back(endpoint); }

  absl::StatusOr<Bytes> OnHeader(EndpointId from, ConstBytes header,
                                 size_t payload_bytes) override {
    if (on_header) {
      if (const absl::Status judged = on_header(from, header, payload_bytes);
          !judged.ok()) {
        return judged;
      }
    }
    if (place) return place(payload_bytes);
    std::string& buffer = buffers_[from].emplace_back(payload_bytes, '?');
    return Bytes(buffer.data(), buffer.size());
  }

  void OnMessage(EndpointId from, ConstBytes header, Bytes payload) override {
    if (place) {
      heard.push_back(
          {from,
           std::string(reinterpret_cast<const char*>(header.data), header.size),
           "", payload.device});
      return;
    }
    std::deque<std::string>& buffers = buffers_[from];
    // Payloads come in the order of their headers.
    is_in_order &=
        !buffers.empty() &&
        reinterpret_cast<char*>(payload.data) == buffers.front().data() &&
        payload.size == buffers.front().size();
    heard.push_back(
        {from,
         std::string(reinterpret_cast<const char*>(header.data), header.size),
         keep_payloads ? std::move(buffers.front()) : std::string(),
         payload.device});
    if (!buffers.empty()) buffers.pop_front();
    if (on_message) on_message(heard.back());
  }

  void OnClosed(EndpointId endpoint, const absl::Status& why) override {
    ++num_closed[endpoint];
    closed[endpoint] = why;
    sends_due_at_close[endpoint] = sends_due[endpoint];
  }

  // `payload` is kept until the completion.
  absl::Status Send(EndpointId to, const std::string& header,
                    std::shared_ptr<const std::string> payload) {
    const size_t index = results.size();
    results.emplace_back();
    is_sending = true;
    const absl::Status sent = context->Send(
        to, {header.data(), header.size()}, {payload->data(), payload->size()},
        [this, to, index, payload](const absl::Status& result) {
          results[index].push_back(result);
          is_completed_inline |= is_sending;
          --sends_due[to];
          ++num_completed;
        });
    is_sending = false;
    if (sent.ok()) ++sends_due[to];
    return sent;
  }
  absl::Status Send(EndpointId to, const std::string& header,
                    const std::string& payload = "") {
    return Send(to, header, std::make_shared<const std::string>(payload));
  }

  bool EachCompletedOnce() const {
    for (const auto& result : results) {
      if (result.size() != 1) return false;
    }
    return true;
  }

  absl::Status status;
  std::vector<EndpointId> accepted;
  std::deque<Heard> heard;
  std::map<EndpointId, absl::Status> closed;
  std::map<EndpointId, int> num_closed;
  std::map<EndpointId, int> sends_due;
  std::map<EndpointId, int> sends_due_at_close;
  std::deque<std::vector<absl::Status>> results;  // of each Send
  size_t num_completed = 0;
  bool is_sending = false;
  bool is_completed_inline = false;
  bool is_in_order = true;
  bool keep_payloads = true;
  std::function<absl::Status(EndpointId, ConstBytes, size_t)> on_header;
  std::function<void(const Heard&)> on_message;
  // Where payloads go; without it, into strings.
  std::function<Bytes(size_t)> place;

 private:
  std::map<EndpointId, std::deque<std::string>> buffers_;

 public:
  // Last: it goes first, while its buffers are there.
  std::unique_ptr<TransportContext> context;
};

// Connects `from` to `to`, which begins to listen.
inline absl::StatusOr<EndpointId> Connect(Node& from, Node& to) {
  const absl::StatusOr<std::string> address = to.context->Listen();
  if (!address.ok()) return address.status();
  return from.context->Connect(*address);
}

// Drives `nodes` until `condition`; false if it does not come true in time.
inline bool Drive(const std::vector<Node*>& nodes,
                  const std::function<bool()>& condition,
                  Duration limit = std::chrono::seconds(60)) {
  const TimePoint deadline = Clock::now() + limit;
  while (!condition()) {
    if (Clock::now() > deadline) return false;
    for (Node* node : nodes) {
      node->context->Progress(
          Clock::now() +
          std::chrono::microseconds(nodes.size() == 1 ? 20000 : 0));
    }
  }
  return true;
}

}  // namespace telegrad::testing
