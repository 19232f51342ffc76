#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "transport/transport.h"

namespace telegrad {

absl::StatusOr<std::unique_ptr<TransportContext>> MakeTcpTransport(
    const TransportOptions& options, TransportHandler* handler);

}  // namespace telegrad
