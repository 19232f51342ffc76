#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "transport/transport.h"

namespace telegrad {

// Emulates a slow link: each endpoint's messages leave one after the other, a
// message of b bytes (header and payload) b / link_bytes_per_s seconds after
// the one before it has left, or after Send if that is later. The whole message
// leaves at the end of its time (store and forward). No burst credit.
// link_latency_s (at most kMaxLinkLatencyS) after it has left, it is given to
// the inner transport, which calls `done`: its payload is borrowed so long.
// Each sender shapes what it sends; the other direction is shaped at the other
// end. Connecting takes no time of the link. Close lets what is queued arrive
// first, for at most kCloseGrace, and only then begins the inner Close.
absl::StatusOr<std::unique_ptr<TransportContext>> MakeEmulatedLink(
    const TransportFactory& make_inner, const TransportOptions& options,
    TransportHandler* handler);

}  // namespace telegrad
