#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "transport/transport.h"

namespace telegrad {

// UCX active messages over TCP, shared memory and RDMA.
absl::StatusOr<std::unique_ptr<TransportContext>> MakeUcxTransport(
    const TransportOptions& options, TransportHandler* handler);
// InvalidArgument: it has no such tls.
absl::Status CheckUcxTransport(const TransportOptions& options);

}  // namespace telegrad
