#include "topology/import/hwloc_ports.h"

#include <algorithm>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "topology/path.h"

namespace telegrad::topology_import {
namespace {

constexpr char kSource[] = "hwloc XML";
constexpr int kMaxPortNumber = 16;

// "fe80:0000:...", eight groups of four digits.
bool ParseGid(absl::string_view text, std::array<uint8_t, 16>& gid) {
  const std::vector<absl::string_view> groups = absl::StrSplit(text, ':');
  if (groups.size() != 8) return false;
  for (size_t i = 0; i < groups.size(); ++i) {
    const auto value = ParseHex(groups[i]);
    if (!value || groups[i].size() != 4) return false;
    gid[2 * i] = static_cast<uint8_t>(*value >> 8);
    gid[2 * i + 1] = static_cast<uint8_t>(*value & 0xff);
  }
  return true;
}

GidScope ScopeOf(const std::array<uint8_t, 16>& gid) {
  const auto is_zero = [](uint8_t byte) { return byte == 0; };
  if (std::all_of(gid.begin() + 8, gid.end(), is_zero)) return GidScope::kEmpty;
  if (gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80) return GidScope::kLinkLocal;
  const bool is_mapped = std::all_of(gid.begin(), gid.begin() + 10, is_zero) &&
                         gid[10] == 0xff && gid[11] == 0xff;
  if (!is_mapped) return GidScope::kIpv6;
  return gid[12] == 169 && gid[13] == 254 ? GidScope::kLinkLocal
                                          : GidScope::kIpv4;
}

bool IsRoutable(const Gid& gid) {
  return gid.scope == GidScope::kIpv4 || gid.scope == GidScope::kIpv6;
}

// Reads the infos "Port1State", "Port1LID" and "Port1GID3" of one port.
Port ReadPort(const XmlElement& object, int number) {
  Port port = {.number = number};
  const std::string prefix = absl::StrCat("Port", number);
  for (const XmlElement& info : object.children) {
    absl::string_view name = info.Attribute("name");
    if (info.name != "info" || !absl::ConsumePrefix(&name, prefix)) continue;
    const absl::string_view value = info.Attribute("value");
    const std::vector<Evidence> why = {{.what = std::string(name),
                                        .source = kSource,
                                        .raw = std::string(value)}};
    if (name == "State") port.state = {.value = ParseInt(value), .why = why};
    if (name == "LID") port.lid = {.value = ParseHex(value), .why = why};
    if (!absl::ConsumePrefix(&name, "GID") || port.gids.size() >= 256) continue;
    Gid gid;
    const auto index = ParseInt(name);
    if (!index || *index < 0 || !ParseGid(value, gid.raw)) continue;
    gid.index = *index;
    gid.scope = ScopeOf(gid.raw);
    port.gids.push_back(std::move(gid));
  }
  return port;
}

// InfiniBand gets row 0. RoCE gets the last of the best rows: the file has no
// types, and of two equal rows the kernel puts RoCE v2 behind v1.
void ChooseGid(Port& port) {
  if (port.fabric == Fabric::kInfiniBand) {
    for (Gid& gid : port.gids) gid.type = GidType::kInfiniBand;
    port.chosen_gid = {.value = 0,
                       .why = {Note("gid_index", kSource, "InfiniBand")}};
    return;
  }
  if (port.fabric != Fabric::kRoceV2) return;
  const Gid* best = nullptr;
  for (const GidScope scope : {GidScope::kIpv6, GidScope::kIpv4}) {
    for (const Gid& gid : port.gids) {
      if (gid.scope == scope) best = &gid;
    }
  }
  if (best == nullptr) {
    port.chosen_gid.why = {
        Note("gid_index", kSource, "no GID that can be routed")};
    return;
  }
  const int index = best->index;
  const std::array<uint8_t, 16> raw = best->raw;
  for (Gid& gid : port.gids) {
    if (gid.raw == raw) {
      gid.type = gid.index == index ? GidType::kRoceV2 : GidType::kRoceV1;
    }
  }
  port.chosen_gid = {
      .value = index,
      .why = {Note("gid_index", kSource, "of equal GIDs the last is RoCE v2")}};
}

// What hwloc shows of a port's fabric beyond the card's numbers: a LID is
// given by a subnet manager of InfiniBand.
FabricGuess GuessPort(const Port& port, const PciIds& ids,
                      absl::string_view name) {
  FabricGuess guess = GuessFabric(ids, name);
  guess.is_rdma = true;
  if (guess.fabric == Fabric::kEfa || guess.fabric == Fabric::kOmniPath ||
      guess.fabric == Fabric::kIwarp || IsOtherRdmaName(name)) {
    return guess;
  }
  const uint32_t lid = port.lid.value_or(0);
  const bool is_ethernet = ids.device_class && *ids.device_class >> 8 == 0x0200;
  const bool has_routable =
      std::any_of(port.gids.begin(), port.gids.end(), IsRoutable);
  const bool is_infiniband_class =
      ids.device_class && *ids.device_class >> 8 == 0x0207;
  if (is_infiniband_class || (lid != 0 && !is_ethernet)) {
    guess.fabric = Fabric::kInfiniBand;
  } else if (lid == 0 && (is_ethernet || has_routable)) {
    guess.fabric = Fabric::kRoceV2;
  } else {
    guess.fabric = Fabric::kUnknown;
  }
  guess.why = absl::StrCat(
      "PCI class ",
      ids.device_class ? absl::StrFormat("0x%06x", *ids.device_class) : "?",
      ", LID ", lid, has_routable ? ", a routable GID" : "");
  return guess;
}

}  // namespace

absl::string_view Info(const XmlElement& object, absl::string_view name) {
  for (const XmlElement& child : object.children) {
    if (child.name == "info" && child.Attribute("name") == name) {
      return child.Attribute("value");
    }
  }
  return "";
}

void FillFromOpenFabrics(const XmlElement& object, const PciIds& ids,
                         Nic& nic) {
  nic.name = std::string(object.Attribute("name"));
  nic.is_rdma = true;
  for (int number = 1; number <= kMaxPortNumber; ++number) {
    const std::string state = absl::StrCat("Port", number, "State");
    if (Info(object, state).empty()) continue;
    Port port = ReadPort(object, number);
    const FabricGuess guess = GuessPort(port, ids, nic.name);
    port.fabric = guess.fabric;
    port.link_layer = LayerOf(guess.fabric);
    nic.pci_class.why.push_back(
        Note(absl::StrCat("port ", number, " ", Name(guess.fabric)), kSource,
             guess.why));
    ChooseGid(port);
    nic.ports.push_back(std::move(port));
  }
}

}  // namespace telegrad::topology_import
