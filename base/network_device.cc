#include "base/network_device.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/resource_limit.h"
#include "base/socket.h"
#include "base/status_macros.h"

namespace telegrad {
namespace {

// Empty: of another family, or link-local.
std::string TextOf(const sockaddr* address, int family) {
  if (address == nullptr || address->sa_family != family) return "";
  const void* number = nullptr;
  if (family == AF_INET) {
    number = &reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
  } else {
    const auto& ip6 = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
    if (IN6_IS_ADDR_LINKLOCAL(&ip6)) return "";
    number = &ip6;
  }
  std::array<char, INET6_ADDRSTRLEN> text = {};
  const char* written = inet_ntop(family, number, text.data(), text.size());
  return written == nullptr ? "" : written;
}

using Addresses = std::unique_ptr<ifaddrs, void (*)(ifaddrs*)>;

absl::StatusOr<Addresses> ListAddresses() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) {
    return SystemError("getifaddrs", errno, absl::StatusCode::kInternal);
  }
  return Addresses(list, freeifaddrs);
}

}  // namespace

absl::StatusOr<std::string> AddressOfDevice(const std::string& name) {
  ASSIGN_OR_RETURN(const Addresses list, ListAddresses());
  std::set<std::string> others;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* it = list.get(); it != nullptr; it = it->ifa_next) {
      const std::string text = TextOf(it->ifa_addr, family);
      if (text.empty() || (it->ifa_flags & IFF_UP) == 0) continue;
      if (it->ifa_name == name) return text;
      others.insert(it->ifa_name);
    }
  }
  return absl::NotFoundError(absl::StrCat(
      "no network device \"", name, "\" that is up and has an address; there ",
      others.size() == 1 ? "is " : "are ", absl::StrJoin(others, ", ")));
}

absl::StatusOr<std::string> DeviceOfAddress(const std::string& address) {
  ASSIGN_OR_RETURN(const Addresses list, ListAddresses());
  for (const ifaddrs* it = list.get(); it != nullptr; it = it->ifa_next) {
    for (const int family : {AF_INET, AF_INET6}) {
      const std::string text = TextOf(it->ifa_addr, family);
      if (!text.empty() && text == address) return it->ifa_name;
    }
  }
  return absl::NotFoundError(
      absl::StrCat("no network device has the address ", address));
}

namespace {

using Number = std::array<unsigned char, 16>;

// The number's bytes; IPv4 fills the first 4.
bool ReadNumber(int family, const std::string& text, Number* bytes) {
  bytes->fill(0);
  return inet_pton(family, text.c_str(), bytes->data()) == 1;
}

struct OwnedAddress {
  std::string device;
  std::string text;
};

// Addresses of devices that are up: IPv4 first, loopback last.
absl::StatusOr<std::vector<OwnedAddress>> OwnAddresses() {
  ASSIGN_OR_RETURN(const Addresses list, ListAddresses());
  std::vector<OwnedAddress> all;
  for (const bool is_loopback : {false, true}) {
    for (const int family : {AF_INET, AF_INET6}) {
      for (const ifaddrs* it = list.get(); it != nullptr; it = it->ifa_next) {
        std::string text = TextOf(it->ifa_addr, family);
        if (text.empty() || (it->ifa_flags & IFF_UP) == 0 ||
            ((it->ifa_flags & IFF_LOOPBACK) != 0) != is_loopback) {
          continue;
        }
        all.push_back({it->ifa_name, std::move(text)});
      }
    }
  }
  return all;
}

std::optional<std::string> InNetwork(const std::vector<OwnedAddress>& all,
                                     const std::string& network,
                                     absl::string_view prefix) {
  int bits = 0;
  for (const int family : {AF_INET, AF_INET6}) {
    Number wanted;
    if (!ReadNumber(family, network, &wanted) ||
        !absl::SimpleAtoi(prefix, &bits) || bits < 0 ||
        bits > (family == AF_INET ? 32 : 128)) {
      continue;
    }
    for (const OwnedAddress& own : all) {
      Number mine;
      if (!ReadNumber(family, own.text, &mine)) continue;
      int differs = 0;
      for (int bit = 0; bit < bits; ++bit) {
        const auto byte = static_cast<size_t>(bit / 8);
        differs |= (mine[byte] ^ wanted[byte]) & (0x80 >> bit % 8);
      }
      if (differs == 0) return own.text;
    }
  }
  return std::nullopt;
}

// By asking the kernel for the route; nothing is sent.
absl::StatusOr<std::string> AddressTowards(const std::string& host) {
  constexpr int kAnyPort = 9;  // discard
  ASSIGN_OR_RETURN(const std::vector<SocketAddress> addresses,
                   Resolve(host, kAnyPort));
  const SocketAddress& to = addresses.front();
  const UniqueFd fd(socket(to.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd.is_open() ||
      connect(fd.get(), reinterpret_cast<const sockaddr*>(&to.storage),
              to.length) != 0) {
    return SystemError(absl::StrCat("no route to ", host), errno);
  }
  ASSIGN_OR_RETURN(const SocketAddress mine, LocalAddress(fd.get()));
  ASSIGN_OR_RETURN(HostPort parts, ParseHostPort(ToString(mine)));
  return std::move(parts.host);
}

}  // namespace

absl::StatusOr<std::vector<std::string>> OutsideAddresses() {
  ASSIGN_OR_RETURN(const std::vector<OwnedAddress> all, OwnAddresses());
  const auto is_v6 = [](const std::string& text) {
    return text.find(':') != std::string::npos;
  };
  std::vector<std::string> outside;
  for (const OwnedAddress& own : all) {
    const auto address = ParseIp(own.text, 0);
    if (!address.ok() || IsLoopback(*address)) continue;
    if (outside.empty() || is_v6(outside[0]) == is_v6(own.text)) {
      outside.push_back(own.text);
    }
  }
  return outside;
}

absl::StatusOr<std::string> OwnAddress(const std::string& text,
                                       const std::string& towards) {
  if (text == "auto" && !towards.empty()) {
    const absl::StatusOr<std::string> found = AddressTowards(towards);
    if (found.ok()) return found;
    return absl::InvalidArgumentError(
        absl::StrCat("auto: ", found.status().message()));
  }
  const absl::StatusOr<SocketAddress> number = ParseIp(text, 0);
  if (number.ok() && IsLoopback(*number)) return text;
  ASSIGN_OR_RETURN(const std::vector<OwnedAddress> all, OwnAddresses());
  const size_t slash = text.find('/');
  if (slash != std::string::npos) {
    const auto found =
        InNetwork(all, text.substr(0, slash), text.substr(slash + 1));
    if (found.has_value()) return *found;
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> outside, OutsideAddresses());
  std::vector<std::string> there;
  for (const OwnedAddress& own : all) {
    if (own.device == text || own.text == text) return own.text;
    there.push_back(absl::StrCat(own.device, " ", own.text));
  }
  if (text == "auto" && outside.size() == 1) return outside[0];
  if (text == "auto") {
    return absl::InvalidArgumentError(
        absl::StrCat("auto could mean any of ", absl::StrJoin(there, ", "),
                     ": name a device or a network"));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", text, "\" is neither an address, a network nor a device of ",
      OwnHostName(), "; it has ", absl::StrJoin(there, ", ")));
}

absl::StatusOr<std::string> AddressOrDevice(const std::string& text) {
  return ParseIp(text, 0).ok() ? text : AddressOfDevice(text);
}

std::string OwnNetworkNamespace() {
  char name[64];
  const ssize_t size = readlink("/proc/self/ns/net", name, sizeof(name));
  return size > 0 ? std::string(name, static_cast<size_t>(size)) : "";
}

std::string OwnBootId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

}  // namespace telegrad
