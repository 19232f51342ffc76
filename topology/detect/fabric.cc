#include "topology/detect/fabric.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "topology/path.h"

namespace telegrad::detect {
namespace {

constexpr uint32_t kAmazon = 0x1d0f;
constexpr int kRnic = 4;         // ib_node_type of the kernel
constexpr int kUnspecified = 7;  // EFA

struct Verdict {
  Fabric fabric = Fabric::kUnknown;
  std::string why = {};
  Confidence confidence = Confidence::kReported;
};

bool NameStarts(const Nic& nic, absl::string_view prefix) {
  const std::string board = absl::AsciiStrToLower(nic.board);
  return absl::StartsWith(nic.name, prefix) ||
         absl::StartsWith(nic.driver, prefix) ||
         absl::StartsWith(board, prefix);
}

bool IsEfa(const Nic& nic) {
  const bool device =
      nic.device.known() && (*nic.device.value & 0xfff0U) == 0xefa0;
  return nic.driver == "efa" || (nic.vendor.value_or(0) == kAmazon && device);
}

Verdict Roce(const Port& port) {
  const auto has = [&](GidType type) {
    return std::any_of(port.gids.begin(), port.gids.end(),
                       [&](const Gid& gid) { return gid.type == type; });
  };
  if (has(GidType::kRoceV2)) {
    return {Fabric::kRoceV2, "link layer Ethernet, a GID row is RoCE v2"};
  }
  if (has(GidType::kRoceV1)) {
    return {Fabric::kRoceV1, "link layer Ethernet, GID rows are RoCE v1 alone"};
  }
  return {Fabric::kRoceV2,
          "link layer Ethernet; no GID row tells the version, v2 is usual",
          Confidence::kAssumed};
}

Verdict Classify(const Nic& nic, const Port& port) {
  if (IsEfa(nic)) return {Fabric::kEfa, "driver efa or PCI id 1d0f:efaN"};
  if (NameStarts(nic, "hfi1")) {
    return {Fabric::kOmniPath, "device, driver or board is hfi1",
            Confidence::kInferred};
  }
  if (nic.node_type.value_or(0) == kRnic) {
    return {Fabric::kIwarp, "node_type 4 (RNIC)"};
  }
  if (!nic.node_type.known() &&
      (NameStarts(nic, "i40iw") || NameStarts(nic, "cxgb"))) {
    return {Fabric::kIwarp, "device, driver or board is an iWARP card's",
            Confidence::kInferred};
  }
  if (port.link_layer == LinkLayer::kInfiniBand) {
    return {Fabric::kInfiniBand, "link layer InfiniBand"};
  }
  if (port.link_layer == LinkLayer::kEthernet) return Roce(port);
  if (nic.node_type.value_or(0) == kUnspecified &&
      nic.vendor.value_or(kAmazon) == kAmazon) {
    return {Fabric::kEfa, "link layer unknown and node_type 7, as EFA has them",
            Confidence::kInferred};
  }
  return {Fabric::kUnknown, "no rule knows this device", Confidence::kInferred};
}

}  // namespace

void ClassifyFabric(const Nic& nic, Port& port) {
  const Verdict verdict = Classify(nic, port);
  port.fabric = verdict.fabric;
  port.chosen_gid.why.push_back(
      {.what = absl::StrCat(nic.name, "/", port.number, ": transport ",
                            Name(verdict.fabric), ": ", verdict.why),
       .source = "class/infiniband",
       .raw = Name(port.link_layer),
       .confidence = verdict.confidence});
}

}  // namespace telegrad::detect
