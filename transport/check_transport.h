#pragma once

#include "absl/status/status.h"
#include "transport/transport.h"

namespace telegrad {

// Whether MakeTransport takes such options, as far as that is known without a
// context. NotFound names the transports that there are; InvalidArgument: rails
// for one that takes none.
absl::Status CheckTransport(const TransportOptions& options);

}  // namespace telegrad
