#include "topology/posix/posix_facts.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>

#include <array>

#include "absl/strings/str_cat.h"

namespace telegrad {
namespace {

// The numeric form of an IPv4 or IPv6 address; empty for any other.
std::string AddressText(const sockaddr* address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* raw = nullptr;
  if (address == nullptr) return "";
  if (address->sa_family == AF_INET) {
    raw = &reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
  } else if (address->sa_family == AF_INET6) {
    raw = &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  } else {
    return "";
  }
  const char* shown =
      ::inet_ntop(address->sa_family, raw, text.data(), text.size());
  return shown == nullptr ? "" : shown;
}

void AddFreeShm(Known<uint64_t>& known) {
  struct statvfs info {};
  if (::statvfs("/dev/shm", &info) != 0) return;
  known.value = uint64_t{info.f_bavail} * info.f_frsize;
  known.why.push_back(
      {.what = "free in /dev/shm",
       .source = "statvfs",
       .raw = absl::StrCat(*known.value, " of ",
                           uint64_t{info.f_blocks} * info.f_frsize),
       .confidence = Confidence::kMeasured});
}

}  // namespace

void AddPosixFacts(const TopologyOptions& /*options*/, Machine& machine) {
  constexpr size_t kMaxAddresses = 256;
  AddFreeShm(machine.capabilities.shm_bytes);
  utsname system{};
  if (::uname(&system) == 0) machine.arch = system.machine;
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return;
  for (const ifaddrs* each = all; each != nullptr; each = each->ifa_next) {
    const std::string text = AddressText(each->ifa_addr);
    for (NetInterface& interface : machine.interfaces) {
      const bool is_here = !text.empty() && interface.name == each->ifa_name;
      if (is_here && interface.addresses.size() < kMaxAddresses) {
        interface.addresses.push_back(text);
      }
    }
  }
  ::freeifaddrs(all);
}

}  // namespace telegrad
