#include "transport/choose/rdma.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <system_error>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace telegrad {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxReasons = 3;

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

bool HasRoceV2(const fs::path& port) {
  for (const std::string& row : NamesIn(port / "gids")) {
    const std::string type = FirstLine(port / "gid_attrs" / "types" / row);
    if (absl::StrContains(type, "RoCE v2") &&
        IsRoutable(FirstLine(port / "gids" / row))) {
      return true;
    }
  }
  return false;
}

// Why an active port does no RDMA here; empty if it does.
std::string WhyNot(const fs::path& card, const fs::path& port,
                   const std::string& name, const fs::path& nodes,
                   const TransportOptions& options) {
  if (options.rdma_ports.has_value() &&
      !absl::c_linear_search(*options.rdma_ports, name)) {
    return "is not to be used";
  }
  if (absl::StartsWith(FirstLine(card / "node_type"), "4:")) return "is iWARP";
  // It says InfiniBand.
  if (absl::StartsWith(name, "hfi1_")) return "is Omni-Path";
  if (!HasNode(card, nodes)) return "has no node in /dev/infiniband";
  if (DriverOf(card) == "efa") return "";
  const std::string layer = FirstLine(port / "link_layer");
  if (layer == "InfiniBand") return "";
  if (layer != "Ethernet") return absl::StrCat("has link layer '", layer, "'");
  const bool has_gid = options.gid_rows.contains(name) || HasRoceV2(port);
  return has_gid ? "" : "has no routable GID of RoCE v2";
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
  return {.why = reasons.empty() ? "no card here does RDMA"
                                 : absl::StrJoin(reasons, ", ")};
}

}  // namespace telegrad
