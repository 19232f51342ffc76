#include "transport/choose/rdma.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <system_error>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/socket.h"
#include "transport/check_transport.h"
#include "transport/choose/choose.h"

namespace telegrad {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxReasons = 3;
constexpr char kNoCard[] = "no card here does RDMA";
constexpr uint64_t kMinLocked = uint64_t{64} << 20;

// Names in a folder, sorted; none where it cannot be read.
std::set<std::string> NamesIn(const fs::path& folder) {
  std::set<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    names.insert(it->path().filename());
  }
  return names;
}

std::string FirstLine(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);  // an empty row of the GID table reads as EINVAL
  return line;
}

std::string DriverOf(const fs::path& card) {
  std::error_code error;
  return fs::read_symlink(card / "device" / "driver", error).filename();
}

// In a container the nodes may be missing though sysfs shows the card.
bool HasNode(const fs::path& card, const fs::path& nodes) {
  const std::set<std::string> verbs =
      NamesIn(card / "device" / "infiniband_verbs");
  std::error_code error;
  return fs::exists(verbs.empty() ? nodes : nodes / *verbs.begin(), error);
}

// Neither empty nor link-local: fe80::/10, ::ffff:169.254.0.0/112.
bool IsRoutable(const std::string& gid) {
  in6_addr address{};
  if (inet_pton(AF_INET6, gid.c_str(), &address) != 1) return false;
  if (IN6_IS_ADDR_UNSPECIFIED(&address) || IN6_IS_ADDR_LINKLOCAL(&address)) {
    return false;
  }
  return !IN6_IS_ADDR_V4MAPPED(&address) || address.s6_addr[12] != 169 ||
         address.s6_addr[13] != 254;
}

// What keeps RoCE v2 from the port; empty: nothing.
std::string WhyNoRoceV2(const fs::path& port) {
  std::string first;  // row with an address
  for (const std::string& row : NamesIn(port / "gids")) {
    const std::string type = FirstLine(port / "gid_attrs" / "types" / row);
    const std::string gid = FirstLine(port / "gids" / row);
    if (absl::StrContains(type, "RoCE v2") && IsRoutable(gid)) return "";
    if (first.empty() && IsRoutable(gid)) {
      first = absl::StrCat(" (row ", row, " is ", type, ", ", gid, ")");
    }
  }
  return absl::StrCat("has no routable GID of RoCE v2", first);
}

// Why an active port does no RDMA here; empty if it does.
std::string WhyNot(const fs::path& card, const fs::path& port,
                   const std::string& name, const fs::path& nodes,
                   const TransportOptions& options) {
  if (absl::StartsWith(FirstLine(card / "node_type"), "4:")) return "is iWARP";
  // It says InfiniBand.
  if (absl::StartsWith(name, "hfi1_")) return "is Omni-Path";
  if (!HasNode(card, nodes)) return "has no node in /dev/infiniband";
  const std::string layer = FirstLine(port / "link_layer");
  const bool is_efa = DriverOf(card) == "efa";
  if (!is_efa && layer != "InfiniBand" && layer != "Ethernet") {
    return absl::StrCat("has link layer '", layer, "'");
  }
  if (!is_efa && layer == "Ethernet" && !options.gid_rows.contains(name)) {
    std::string why = WhyNoRoceV2(port);
    if (!why.empty()) return why;
  }
  const bool is_left_out = options.rdma_ports.has_value() &&
                           !absl::c_linear_search(*options.rdma_ports, name);
  return is_left_out ? "is not to be used" : "";
}

// CAP_IPC_LOCK lifts the limit.
bool MayLockAll() {
  constexpr uint64_t kIpcLock = uint64_t{1} << 14;
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    absl::string_view text = line;
    uint64_t bits = 0;
    if (absl::ConsumePrefix(&text, "CapEff:") &&
        absl::SimpleHexAtoi(absl::StripAsciiWhitespace(text), &bits)) {
      return (bits & kIpcLock) != 0;
    }
  }
  return false;
}

}  // namespace

FoundRdma FindRdma(const TransportOptions& options) {
  const fs::path sysfs(options.sysfs);
  const fs::path cards = sysfs / "class" / "infiniband";
  const fs::path nodes = sysfs.parent_path() / "dev" / "infiniband";
  std::vector<std::string> reasons;
  for (const std::string& card_name : NamesIn(cards)) {
    const fs::path card = cards / card_name;
    for (const std::string& number : NamesIn(card / "ports")) {
      const fs::path port = card / "ports" / number;
      if (!absl::StartsWith(FirstLine(port / "state"), "4:")) continue;
      const std::string name = absl::StrCat(card_name, ":", number);
      const std::string why = WhyNot(card, port, name, nodes, options);
      if (!why.empty()) {
        if (reasons.size() == kMaxReasons) reasons.push_back("and more");
        if (reasons.size() > kMaxReasons) continue;
        reasons.push_back(absl::StrCat(name, " ", why));
        continue;
      }
      if (DriverOf(card) != "efa") {
        return {FoundRdma::Kind::kUcx, absl::StrCat(name, " does RDMA")};
      }
      return {FoundRdma::Kind::kEfa, absl::StrCat(name, " is EFA")};
    }
  }
  return {.why = reasons.empty() ? kNoCard : absl::StrJoin(reasons, ", ")};
}

uint64_t LockedMemoryLimit() {
  rlimit limit{};
  const bool is_limited = getrlimit(RLIMIT_MEMLOCK, &limit) == 0 &&
                          limit.rlim_cur != RLIM_INFINITY && !MayLockAll();
  return is_limited ? limit.rlim_cur : UINT64_MAX;
}

std::string RdmaWarning(const TransportOptions& options,
                        uint64_t locked_bytes) {
  const std::string name = ForNetwork(options).name;
  const absl::StatusOr<SocketAddress> address =
      ParseIp(options.bind_address, 0);
  if (options.name == "auto" || name != "ucx" || !options.tls.empty() ||
      (address.ok() && IsLoopback(*address))) {
    return "";
  }
  const FoundRdma found = FindRdma(options);
  if (found.kind == FoundRdma::Kind::kNone && found.why != kNoCard) {
    return absl::StrCat(
        options.name, " goes over TCP here: ", found.why,
        "; RoCE v2 needs an IP address on the port's interface "
        "(`telegrad-topo doctor` says more); --transport tcp is the same "
        "without this line");
  }
  if (found.kind != FoundRdma::Kind::kUcx || locked_bytes >= kMinLocked) {
    return "";
  }
  return absl::StrCat(
      found.why, ", but only ", locked_bytes >> 10,
      " KiB of memory may be locked and RDMA needs 64 MiB: ulimit -l unlimited "
      "(LimitMEMLOCK=infinity of a service, --ulimit memlock=-1 of a "
      "container), or --transport tcp");
}

}  // namespace telegrad
