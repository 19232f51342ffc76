#pragma once

#include <string>

#include "transport/transport.h"

namespace telegrad {

// As ChooseTransport for "auto", whatever this build has.
TransportChoice ChooseFor(const TransportOptions& options);

// The name of a network becomes that of the transport that reaches it, and EFA
// its tls, so that nothing else is taken; other names stay.
TransportOptions ForNetwork(TransportOptions options);

}  // namespace telegrad
