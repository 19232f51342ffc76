#pragma once

#include <array>
#include <deque>
#include <unordered_map>

#include "transport/forwarding.h"
#include "transport/send_checks.h"

namespace telegrad {

struct DelayedMessage {
  TimePoint leaves = {};
  std::array<std::byte, kMaxCarriedBytes> header = {};
  size_t header_bytes = 0;
  ConstBytes payload = {};
  SendDone done = nullptr;
};
using DelayedMessages = std::deque<DelayedMessage>;

// The base of decorators whose messages leave later: each endpoint has a queue,
// in the order of which they do. Close lets what is queued leave first, for at
// most kCloseGrace, and only then begins the inner Close. Payloads are borrowed
// until the inner context calls `done`.
class DelayingContext : public ForwardingContext {
 public:
  bool IsInMemory(EndpointId) const final { return false; }  // a network
  absl::StatusOr<EndpointId> Connect(absl::string_view address) override;
  absl::Status Send(EndpointId to, ConstBytes header, ConstBytes payload,
                    SendDone done) override;
  void Close(EndpointId endpoint) final;

 protected:
  DelayingContext(const TransportOptions& options, TransportHandler* handler)
      : ForwardingContext(handler),
        max_header_bytes_(MaxHeaderBytes(options)) {}

  // Puts what is sent into the queue of its endpoint, where `leaves` never
  // falls.
  virtual void Enqueue(EndpointId to, DelayedMessage message,
                       DelayedMessages& queue) = 0;
  // Ends an endpoint at once: what it has in its queue is `done` with `why`.
  void Cut(EndpointId endpoint, const absl::Status& why);

  void OnAccept(EndpointId endpoint) override;
  void OnClosed(EndpointId endpoint, const absl::Status& why) override;

 private:
  struct Endpoint {
    DelayedMessages queue;
    bool is_closing = false;
    TimePoint close_by;
  };

  bool HandleEvents(TimePoint* next) final;
  void Release(EndpointId id, DelayedMessages& queue, TimePoint now);
  void Refuse(DelayedMessages& queue, const absl::Status& why);

  const size_t max_header_bytes_;
  std::unordered_map<EndpointId, Endpoint> endpoints_;
};

}  // namespace telegrad
