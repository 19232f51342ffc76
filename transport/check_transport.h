#pragma once

#include "absl/status/status.h"
#include "transport/transport.h"

namespace telegrad {

// Whether MakeTransport takes such options, as far as that is known without a
// context. NotFound names the transports, or network devices, that there are;
// InvalidArgument: rails for one that takes none, and numbers out of range.
absl::Status CheckTransport(const TransportOptions& options);

}  // namespace telegrad
