#include "transport/ucx/address.h"

#include <ifaddrs.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <system_error>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace telegrad::ucx {
namespace {

namespace fs = std::filesystem;

const in_addr& Ip4(const sockaddr* address) {
  return reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
}
const in6_addr& Ip6(const sockaddr* address) {
  return reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
}

std::string FirstLine(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);  // an empty GID row reads as EINVAL: no line
  return line;
}

// A missing or unreadable directory has no entries.
std::vector<fs::path> Entries(const fs::path& directory) {
  std::vector<fs::path> paths;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end;
       it.increment(error)) {
    paths.push_back(it->path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

bool PortBelongsTo(const fs::path& port, const std::string& interface) {
  for (const fs::path& row : Entries(port / "gid_attrs" / "ndevs")) {
    if (FirstLine(row) == interface) return true;
  }
  return false;
}

}  // namespace

bool SameIp(const sockaddr* a, const sockaddr* b) {
  if (a->sa_family != b->sa_family) return false;
  if (a->sa_family == AF_INET) return Ip4(a).s_addr == Ip4(b).s_addr;
  if (a->sa_family != AF_INET6) return false;
  return std::memcmp(&Ip6(a), &Ip6(b), sizeof(in6_addr)) == 0;
}

absl::StatusOr<std::string> InterfaceOf(const SocketAddress& address) {
  if (IsLoopback(address)) return std::string("lo");
  const auto* raw = reinterpret_cast<const sockaddr*>(&address.storage);
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) {
    return absl::InternalError(
        absl::StrCat("getifaddrs: ", std::strerror(errno)));
  }
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  for (const ifaddrs* it = list; it != nullptr; it = it->ifa_next) {
    if (it->ifa_addr == nullptr) continue;
    if (SameIp(it->ifa_addr, raw)) return std::string(it->ifa_name);
  }
  return absl::NotFoundError(
      absl::StrCat("no network interface of this machine has the address of ",
                   ToString(address)));
}

std::string DevicesOf(const std::string& interface, const std::string& sysfs) {
  std::vector<std::string> devices = {interface};
  for (const fs::path& device :
       Entries(fs::path(sysfs) / "class" / "infiniband")) {
    for (const fs::path& port : Entries(device / "ports")) {
      if (!PortBelongsTo(port, interface)) continue;
      devices.push_back(absl::StrCat(device.filename().string(), ":",
                                     port.filename().string()));
    }
  }
  return absl::StrJoin(devices, ",");
}

std::vector<std::string> RdmaPortsOf(absl::string_view devices) {
  std::vector<std::string> ports;
  for (const absl::string_view device : absl::StrSplit(devices, ',')) {
    if (absl::StrContains(device, ':')) ports.emplace_back(device);
  }
  return ports;
}

}  // namespace telegrad::ucx
