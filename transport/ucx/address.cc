#include "transport/ucx/address.h"

#include <ifaddrs.h>
#include <netinet/in.h>

#include <cstring>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/resource_limit.h"

namespace telegrad::ucx {
namespace {

const in_addr& Ip4(const sockaddr* address) {
  return reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
}
const in6_addr& Ip6(const sockaddr* address) {
  return reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
}

}  // namespace

bool SameIp(const sockaddr* a, const sockaddr* b) {
  if (a->sa_family != b->sa_family) return false;
  if (a->sa_family == AF_INET) return Ip4(a).s_addr == Ip4(b).s_addr;
  if (a->sa_family != AF_INET6) return false;
  return std::memcmp(&Ip6(a), &Ip6(b), sizeof(in6_addr)) == 0;
}

absl::StatusOr<std::string> InterfaceOf(const SocketAddress& address) {
  const auto* raw = reinterpret_cast<const sockaddr*>(&address.storage);
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) {
    return SystemError("getifaddrs", errno, absl::StatusCode::kInternal);
  }
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  for (const ifaddrs* it = list; it != nullptr; it = it->ifa_next) {
    if (it->ifa_addr == nullptr) continue;
    if (SameIp(it->ifa_addr, raw)) return std::string(it->ifa_name);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "UCX reaches addresses of network interfaces alone, and none of this "
      "machine has that of ",
      ToString(address), ": bind to another one, or take --transport tcp"));
}

std::vector<std::string> RdmaPortsOf(absl::string_view devices) {
  std::vector<std::string> ports;
  for (const absl::string_view device : absl::StrSplit(devices, ',')) {
    if (absl::StrContains(device, ':')) ports.emplace_back(device);
  }
  return ports;
}

}  // namespace telegrad::ucx
