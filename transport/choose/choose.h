#pragma once

#include <string>

#include "transport/transport.h"

namespace telegrad {

// As ChooseTransport for "auto", whatever this build has.
TransportChoice ChooseFor(const TransportOptions& options,
                          const std::string& sysfs);

}  // namespace telegrad
