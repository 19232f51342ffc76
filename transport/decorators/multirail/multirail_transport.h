#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "transport/transport.h"

namespace telegrad {

// Reaches each peer by `options.connections` endpoints of the inner transport,
// for networks where one does not fill the link: a limit per flow (Amazon EC2
// allows 5 Gbit/s outside of a placement group), a hash that picks one of
// several cables, several cards (`options.rails`). Payloads are cut into parts,
// and each part takes the connection that will have sent it first. Messages are
// heard in the order of sending all the same. A peer that Connect knows to be
// in the memory of this machine has one connection. The side that connects says
// how many; both sides of a job must be striped, with any numbers.
absl::StatusOr<std::unique_ptr<TransportContext>> MakeMultiRailTransport(
    const TransportFactory& make_inner, const TransportOptions& options,
    TransportHandler* handler);

}  // namespace telegrad
