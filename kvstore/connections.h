#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "topology/system_root.h"
#include "transport/transport.h"

namespace telegrad {

// Of "auto".
constexpr size_t kAutoConnections = 0;

// "auto", or a number of 1 to kMaxConnections; InvalidArgument for all else.
absl::StatusOr<size_t> ParseConnections(absl::string_view text);
// What is wrong with it, for a command line; empty: nothing.
std::string CheckConnections(const std::string& text);

// TransportOptions::connections, and why so many.
struct ConnectionChoice {
  size_t connections = 1;
  std::string reason = {};  // "eth0 is one link of 10 Gb/s"
};

// What "auto" stands for on this machine, before a transport is made: what the
// planner says (ConnectionsOver) of the device that has the bind address, and
// at least one for each rail. `choice` is ChooseTransport's. Machines that
// differ may come to different numbers, of which a job takes the most.
ConnectionChoice ChooseConnections(const TransportOptions& options,
                                   const TransportChoice& choice);
// The same where `device` has the bind address, with what `root` says of it.
ConnectionChoice ChooseConnections(const TransportOptions& options,
                                   const TransportChoice& choice,
                                   const absl::StatusOr<std::string>& device,
                                   const SysRoot& root);

// "connections 2: bond0: a bond spreads by connection".
std::string Describe(const ConnectionChoice& choice);

}  // namespace telegrad
