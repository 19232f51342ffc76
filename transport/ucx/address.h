#pragma once

#include <sys/socket.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/socket.h"

namespace telegrad::ucx {

bool SameIp(const sockaddr* a, const sockaddr* b);

// The interface that holds `address`, "lo" for any loopback address. Errors:
// NotFound if no interface has it, the wildcard included.
absl::StatusOr<std::string> InterfaceOf(const SocketAddress& address);

// The RDMA ports alone in a list of what UCX calls devices ("eth0,mlx5_0:1").
std::vector<std::string> RdmaPortsOf(absl::string_view devices);

}  // namespace telegrad::ucx
