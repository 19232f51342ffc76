#include "base/network_device.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <set>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
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
    return absl::InternalError(
        absl::StrCat("getifaddrs: ", std::strerror(errno)));
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

absl::StatusOr<std::string> AddressOrDevice(const std::string& text) {
  return ParseIp(text, 0).ok() ? text : AddressOfDevice(text);
}

}  // namespace telegrad
