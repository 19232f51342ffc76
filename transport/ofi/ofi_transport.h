#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "transport/transport.h"

namespace telegrad {

// libfabric's reliable datagram endpoints; TransportOptions::tls chooses the
// provider. Errors: InvalidArgument for an unusable option, Unavailable where
// libfabric has no such provider for the bind address.
absl::StatusOr<std::unique_ptr<TransportContext>> MakeOfiTransport(
    const TransportOptions& options, TransportHandler* handler);

}  // namespace telegrad
