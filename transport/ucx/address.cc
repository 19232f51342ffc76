#include "transport/ucx/address.h"

#include <arpa/inet.h>
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
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

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

absl::StatusOr<SocketAddress> ParseIp(absl::string_view ip, uint16_t port) {
  const std::string text(ip.data(), ip.size());
  SocketAddress address;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&address.storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
  if (inet_pton(AF_INET, text.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    address.size = sizeof(sockaddr_in);
  } else if (inet_pton(AF_INET6, text.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    address.size = sizeof(sockaddr_in6);
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", ip, "\" is not an IP address"));
  }
  return address;
}

absl::StatusOr<SocketAddress> ParseIpPort(absl::string_view text) {
  const size_t colon = text.rfind(':');
  int port = 0;
  if (colon == absl::string_view::npos ||
      !absl::SimpleAtoi(text.substr(colon + 1), &port) || port < 1 ||
      port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text, "\" is not an address of the form IP:PORT"));
  }
  absl::string_view ip = text.substr(0, colon);
  if (ip.size() > 2 && ip.front() == '[' && ip.back() == ']') {
    ip = ip.substr(1, ip.size() - 2);
  }
  return ParseIp(ip, static_cast<uint16_t>(port));
}

std::string FormatIpPort(const SocketAddress& address) {
  char text[INET6_ADDRSTRLEN] = "";
  const sockaddr* raw = address.get();
  if (raw->sa_family == AF_INET6) {
    inet_ntop(AF_INET6, &Ip6(raw), text, sizeof(text));
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(raw);
    return absl::StrCat("[", text, "]:", ntohs(v6->sin6_port));
  }
  inet_ntop(AF_INET, &Ip4(raw), text, sizeof(text));
  const auto* v4 = reinterpret_cast<const sockaddr_in*>(raw);
  return absl::StrCat(text, ":", ntohs(v4->sin_port));
}

bool IsLoopback(const SocketAddress& address) {
  const sockaddr* raw = address.get();
  if (raw->sa_family == AF_INET6) return IN6_IS_ADDR_LOOPBACK(&Ip6(raw));
  return (ntohl(Ip4(raw).s_addr) >> 24) == 127;
}

bool SameIp(const sockaddr* a, const sockaddr* b) {
  if (a->sa_family != b->sa_family) return false;
  if (a->sa_family == AF_INET) return Ip4(a).s_addr == Ip4(b).s_addr;
  if (a->sa_family != AF_INET6) return false;
  return std::memcmp(&Ip6(a), &Ip6(b), sizeof(in6_addr)) == 0;
}

absl::StatusOr<std::string> InterfaceOf(const SocketAddress& address) {
  if (IsLoopback(address)) return std::string("lo");
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) {
    return absl::InternalError(
        absl::StrCat("getifaddrs: ", std::strerror(errno)));
  }
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  for (const ifaddrs* it = list; it != nullptr; it = it->ifa_next) {
    if (it->ifa_addr == nullptr) continue;
    if (SameIp(it->ifa_addr, address.get())) return std::string(it->ifa_name);
  }
  return absl::NotFoundError(
      absl::StrCat("no network interface of this machine has the address of ",
                   FormatIpPort(address)));
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

}  // namespace telegrad::ucx
