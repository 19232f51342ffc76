#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "transport/transport.h"

namespace telegrad {

// What is kept of each direction of an endpoint, and how long is waited.
struct ResendLimits {
  // Sent and not acknowledged, so that as much may wait for an earlier message
  // at the receiver; or one message.
  uint32_t window_messages = 1024;
  size_t window_bytes = kMaxPayloadBytes;
  // Without an acknowledgement the oldest message is sent again: after four
  // round trips within these, twice as long each time.
  Duration min_timeout = std::chrono::milliseconds(20);
  Duration max_timeout = std::chrono::seconds(1);
  // How often one message is sent again; then the endpoint is given up.
  int max_resends = 16;
};

// Makes of a transport that loses, repeats, reorders or harms messages one that
// keeps the contract of TransportContext: numbers them, checks headers and
// payloads by CRC-32C, and sends again what did not arrive as it was sent. A
// payload stays borrowed until the peer has taken it; `done` is called then.
// Close waits for that for kCloseGrace, and only then begins the inner Close.
// A peer that does not call Progress for the sum of the waits (11 s) is given
// up: Unavailable. Both ends must have it.
absl::StatusOr<std::unique_ptr<TransportContext>> MakeResendTransport(
    const TransportFactory& make_inner, const TransportOptions& options,
    TransportHandler* handler, const ResendLimits& limits);
inline absl::StatusOr<std::unique_ptr<TransportContext>> MakeResendTransport(
    const TransportFactory& make_inner, const TransportOptions& options,
    TransportHandler* handler) {
  return MakeResendTransport(make_inner, options, handler, {});
}

}  // namespace telegrad
