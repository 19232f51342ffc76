#include "topology/detect/gid.h"

#include <algorithm>
#include <cerrno>
#include <tuple>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "topology/detect/net.h"

namespace telegrad::detect {
namespace {

constexpr size_t kMaxRows = 4096;

bool ParseGid(absl::string_view text, std::array<uint8_t, 16>* raw) {
  const std::vector<absl::string_view> groups = absl::StrSplit(text, ':');
  if (groups.size() != 8) return false;
  for (size_t i = 0; i < groups.size(); ++i) {
    uint32_t value = 0;
    if (groups[i].empty() || groups[i].size() > 4 ||
        !absl::SimpleHexAtoi(groups[i], &value)) {
      return false;
    }
    (*raw)[2 * i] = static_cast<uint8_t>(value >> 8U);
    (*raw)[2 * i + 1] = static_cast<uint8_t>(value);
  }
  return true;
}

bool IsMapped(const std::array<uint8_t, 16>& raw) {
  return std::all_of(raw.begin(), raw.begin() + 10,
                     [](uint8_t byte) { return byte == 0; }) &&
         raw[10] == 0xff && raw[11] == 0xff;
}

GidType TypeOf(const Line& line, bool has_types) {
  if (absl::StrContains(line.text, "RoCE v2")) return GidType::kRoceV2;
  if (absl::StrContains(line.text, "RoCE v1")) return GidType::kRoceV1;
  if (absl::StartsWith(line.text, "IB")) return GidType::kInfiniBand;
  // Kernels before 4.4 have no types, and RoCE v1 alone.
  return has_types ? GidType::kNone : GidType::kRoceV1;
}

// Smaller is better.
int InterfaceRank(const Machine& machine, const TopologyOptions& options,
                  const std::string& name) {
  using Kind = NetInterface::Kind;
  if (!name.empty() && name == options.wanted_interface) return 0;
  const NetInterface* interface = FindInterface(machine, name);
  if (interface == nullptr) return 3;
  switch (interface->kind) {
    case Kind::kPhysical:
    case Kind::kVirtualDevice:
    case Kind::kBond:
    case Kind::kIpoib:
      return 1;
    case Kind::kVlan:
      return 2;
    default:
      return 4;
  }
}

bool IsRoutable(const Gid& gid) {
  return (gid.type == GidType::kRoceV1 || gid.type == GidType::kRoceV2) &&
         (gid.scope == GidScope::kIpv4 || gid.scope == GidScope::kIpv6);
}

std::string Describe(const Gid& gid) {
  return absl::StrCat("row ", gid.index, ": ", Name(gid.type), ", ",
                      Name(gid.scope), " ", ToText(gid.raw),
                      gid.net_interface.empty()
                          ? std::string(", no interface")
                          : absl::StrCat(" on ", gid.net_interface));
}

const Gid* Best(const Machine& machine, const TopologyOptions& options,
                const Port& port) {
  const auto score = [&](const Gid& gid) {
    return std::make_tuple(gid.type != GidType::kRoceV2,
                           InterfaceRank(machine, options, gid.net_interface),
                           gid.scope != GidScope::kIpv4, gid.index);
  };
  const Gid* best = nullptr;
  for (const Gid& gid : port.gids) {
    if (!IsRoutable(gid)) continue;
    if (best == nullptr || score(gid) < score(*best)) best = &gid;
  }
  return best;
}

}  // namespace

GidScope ScopeOf(const std::array<uint8_t, 16>& raw) {
  const bool has_interface_id =
      std::any_of(raw.begin() + 8, raw.end(), [](uint8_t b) { return b != 0; });
  const bool has_prefix = std::any_of(raw.begin(), raw.begin() + 8,
                                      [](uint8_t b) { return b != 0; });
  const bool is_local = raw[0] == 0xfe && (raw[1] & 0xc0U) == 0x80;
  if (!has_interface_id && (!has_prefix || is_local)) return GidScope::kEmpty;
  if (is_local) return GidScope::kLinkLocal;
  if (!IsMapped(raw)) return GidScope::kIpv6;
  const bool is_zeroconf = raw[12] == 169 && raw[13] == 254;
  return is_zeroconf ? GidScope::kLinkLocal : GidScope::kIpv4;
}

std::string ToText(const std::array<uint8_t, 16>& raw) {
  if (IsMapped(raw)) {
    return absl::StrFormat("::ffff:%d.%d.%d.%d", raw[12], raw[13], raw[14],
                           raw[15]);
  }
  std::string text;
  for (size_t i = 0; i < raw.size(); i += 2) {
    absl::StrAppendFormat(&text, "%s%02x%02x", i == 0 ? "" : ":", raw[i],
                          raw[i + 1]);
  }
  return text;
}

void ReadGids(const SysRoot& root, const std::string& folder, Port& port) {
  const std::vector<std::string> names = root.List(folder + "/gids");
  const bool has_types = root.Covers(folder + "/gid_attrs/types/0") &&
                         root.Exists(folder + "/gid_attrs");
  int num_rows = 0;
  int error = names.empty() ? ENOENT : 0;
  for (const std::string& name : names) {
    int index = 0;
    if (!absl::SimpleAtoi(name, &index) || index < 0 ||
        port.gids.size() >= kMaxRows) {
      continue;
    }
    Gid gid = {.index = index};
    const Line row = ReadLine(root, folder + "/gids/" + name);
    if (row.error != 0) error = row.error;
    if (!ParseGid(row.text, &gid.raw)) continue;
    ++num_rows;
    gid.scope = ScopeOf(gid.raw);
    if (gid.scope == GidScope::kEmpty) continue;
    const std::string attributes = folder + "/gid_attrs";
    gid.type = TypeOf(ReadLine(root, attributes + "/types/" + name), has_types);
    gid.net_interface =
        Printable(ReadLine(root, attributes + "/ndevs/" + name).text);
    port.gids.push_back(std::move(gid));
  }
  std::sort(port.gids.begin(), port.gids.end(),
            [](const Gid& a, const Gid& b) { return a.index < b.index; });
  port.gid_rows.why = {
      {.what = absl::StrCat("GID table: ", num_rows, " readable rows, ",
                            port.gids.size(), " not empty"),
       .source = folder + "/gids",
       .error = num_rows > 0 ? 0 : error}};
  if (num_rows > 0) port.gid_rows.value = num_rows;
}

void TakeRoceVersion(const Gid& row, Port& port) {
  if (row.type == GidType::kRoceV1) port.fabric = Fabric::kRoceV1;
  if (row.type == GidType::kRoceV2) port.fabric = Fabric::kRoceV2;
}

void ChooseRoceGid(const Machine& machine, const TopologyOptions& options,
                   const std::string& name, Port& port) {
  const Gid* best = Best(machine, options, port);
  if (best != nullptr) {
    port.chosen_gid.value = best->index;
    port.net_interface = best->net_interface;
    TakeRoceVersion(*best, port);
  }
  constexpr size_t kMaxReasons = 16;
  size_t others = 0;
  port.chosen_gid.why.push_back(
      {.what = absl::StrCat(
           name, best == nullptr
                     ? absl::StrCat(": no GID: none of ", port.gids.size(),
                                    " readable rows is a routable RoCE address")
                     : absl::StrCat(": GID ", best->index,
                                    " is the best routable row")),
       .source = "gids and gid_attrs of the port",
       .raw = best == nullptr ? std::string() : Describe(*best),
       .confidence = Confidence::kInferred});
  for (const Gid& gid : port.gids) {
    if (&gid == best || ++others > kMaxReasons) continue;
    port.chosen_gid.why.push_back({.what = "not chosen",
                                   .source = "gids and gid_attrs of the port",
                                   .raw = Describe(gid),
                                   .confidence = Confidence::kInferred});
  }
}

}  // namespace telegrad::detect
