#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace telegrad {

// The address, a number, of a network device of this machine that is up: its
// first of IPv4, else of IPv6 that is not link-local. NotFound names the
// devices that there are.
absl::StatusOr<std::string> AddressOfDevice(const std::string& name);

// The same, but an address stands for itself.
absl::StatusOr<std::string> AddressOrDevice(const std::string& text);

// The name of the device that has this address, a number. NotFound: none has.
absl::StatusOr<std::string> DeviceOfAddress(const std::string& address);

}  // namespace telegrad
