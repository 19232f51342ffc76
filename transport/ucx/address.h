#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace telegrad::ucx {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;
  const sockaddr* get() const {
    return reinterpret_cast<const sockaddr*>(&storage);
  }
};

// "127.0.0.1" or "::1"; literal addresses only. Errors: InvalidArgument.
absl::StatusOr<SocketAddress> ParseIp(absl::string_view ip, uint16_t port);

// "127.0.0.1:40123", "[::1]:40123". Errors: InvalidArgument.
absl::StatusOr<SocketAddress> ParseIpPort(absl::string_view text);

std::string FormatIpPort(const SocketAddress& address);

bool IsLoopback(const SocketAddress& address);
bool SameIp(const sockaddr* a, const sockaddr* b);

// The interface that holds `address`, "lo" for any loopback address. Errors:
// NotFound if no interface has it, the wildcard included.
absl::StatusOr<std::string> InterfaceOf(const SocketAddress& address);

// What UCX calls the devices behind `interface`: itself, and the RDMA ports
// whose GIDs belong to it ("mlx5_0:1"), from `sysfs` ("/sys").
std::string DevicesOf(const std::string& interface, const std::string& sysfs);

}  // namespace telegrad::ucx
