#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "transport/transport.h"

namespace telegrad {

// Contexts of one process, each perhaps on its own thread. The receiver copies
// from the sender's payload; nothing is staged.
absl::StatusOr<std::unique_ptr<TransportContext>> MakeInprocTransport(
    const TransportOptions& options, TransportHandler* handler);

}  // namespace telegrad
