#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "transport/transport.h"

namespace telegrad {

absl::StatusOr<std::unique_ptr<TransportContext>> MakeTcpTransport(
    const TransportOptions& options, TransportHandler* handler);
// InvalidArgument: it has no such tls, or the kernel no such congestion
// control.
absl::Status CheckTcpTransport(const TransportOptions& options);

}  // namespace telegrad
