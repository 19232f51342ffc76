#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace telegrad {

// The address, a number, of a network device of this machine that is up: its
// first of IPv4, else of IPv6 that is not link-local. NotFound names the
// devices that there are.
absl::StatusOr<std::string> AddressOfDevice(const std::string& name);

// AddressOfDevice, but an address stands for itself.
absl::StatusOr<std::string> AddressOrDevice(const std::string& text);

// What --bind takes: an address, "10.0.0.0/8" (the first address of this host
// in that network), a device's name, or "auto": the address from which
// `towards`, a host's name or address, is reached; with an empty one this
// host's only address of OutsideAddresses. The result is one of this
// host's own addresses; errors are InvalidArgument and name those that it has.
absl::StatusOr<std::string> OwnAddress(const std::string& text,
                                       const std::string& towards);

// This host's addresses that are not loopback: of IPv4, or of IPv6 where it has
// no other.
absl::StatusOr<std::vector<std::string>> OutsideAddresses();

// The name of the device that has this address, a number. NotFound: none has.
absl::StatusOr<std::string> DeviceOfAddress(const std::string& address);

// The network namespace of this process, "net:[4026531840]": of one machine
// those in the same one reach each other by loopback. Empty: not known.
std::string OwnNetworkNamespace();

// Tells machines of one name apart, until they start again. Empty: not known.
std::string OwnBootId();

}  // namespace telegrad
