#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "transport/transport.h"

namespace telegrad {

// Puts together what a peer that stages sends in fragments: the inner transport
// receives them straight where OnHeader wanted the whole payload. All else
// passes unchanged. A fragment that is not the next one ends the endpoint.
absl::StatusOr<std::unique_ptr<TransportContext>> MakeReassemblyTransport(
    const TransportFactory& make_inner, const TransportOptions& options,
    TransportHandler* handler);

}  // namespace telegrad
