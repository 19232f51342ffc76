#include "topology/import/pci.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <tuple>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"

namespace telegrad::topology_import {
namespace {

constexpr uint32_t kBroadcom = 0x1000;
constexpr uint32_t kAmazon = 0x1d0f;

// The PCIe generation of a Broadcom PEX switch of that level; 0: none.
int BroadcomGeneration(const PciIds& ids, int level) {
  if (ids.vendor != kBroadcom || ids.subsystem_vendor != kBroadcom ||
      !ids.device || !ids.subsystem_device) {
    return 0;
  }
  const uint32_t nibble = *ids.subsystem_device >> 12;
  if (*ids.device == 0xc010 && nibble == (level == 0 ? 0x0u : 0xau)) return 4;
  if (*ids.device == 0xc030 && nibble == (level == 0 ? 0x0u : 0x1u)) return 5;
  return 0;
}

// What drivers of Linux, and rdma-core's renaming, call RDMA devices. kUnknown:
// the PCI class tells between InfiniBand and RoCE.
struct NamePrefix {
  absl::string_view prefix;
  Fabric fabric;
};
constexpr std::array kRdmaNames = {
    NamePrefix{"mlx4_", Fabric::kUnknown},
    NamePrefix{"mlx5_", Fabric::kUnknown},
    NamePrefix{"efa_", Fabric::kEfa},
    NamePrefix{"ibp", Fabric::kInfiniBand},
    NamePrefix{"roce", Fabric::kRoceV2},
    NamePrefix{"bnxt_re", Fabric::kRoceV2},
    NamePrefix{"irdma", Fabric::kRoceV2},
    NamePrefix{"ionic_", Fabric::kRoceV2},
    NamePrefix{"mana_", Fabric::kRoceV2},
    NamePrefix{"qedr", Fabric::kRoceV2},
    NamePrefix{"hns_", Fabric::kRoceV2},
    NamePrefix{"erdma_", Fabric::kIwarp},
    NamePrefix{"i40iw", Fabric::kIwarp},
    NamePrefix{"cxgb4_", Fabric::kIwarp},
    NamePrefix{"iwp", Fabric::kIwarp},
    NamePrefix{"hfi1_", Fabric::kOmniPath},
    NamePrefix{"opap", Fabric::kOmniPath},
};

// ConnectX-3 in InfiniBand mode has the class "other network controller".
Fabric FabricOfClass(const PciIds& ids) {
  if (!ids.device_class) return Fabric::kUnknown;
  switch (*ids.device_class >> 8) {
    case 0x0207:
    case 0x0280:
      return Fabric::kInfiniBand;
    case 0x0200:
      return Fabric::kRoceV2;
    default:
      return Fabric::kUnknown;
  }
}

}  // namespace

std::vector<std::string> FoldedIds(const std::vector<Switch>& nearest_first) {
  std::vector<std::string> ids;
  for (size_t i = 0; i < nearest_first.size(); ++i) {
    const int generation = BroadcomGeneration(nearest_first[i].ids, 1);
    const bool is_folded =
        generation != 0 && i + 1 < nearest_first.size() &&
        BroadcomGeneration(nearest_first[i + 1].ids, 0) == generation;
    if (!is_folded) ids.push_back(nearest_first[i].id);
  }
  return ids;
}

std::optional<uint32_t> ParseHex(absl::string_view text) {
  if (!absl::ConsumePrefix(&text, "0x")) absl::ConsumePrefix(&text, "0X");
  uint32_t value = 0;
  const bool is_number =
      !text.empty() && text.size() <= 8 &&
      absl::ascii_isxdigit(static_cast<unsigned char>(text[0])) &&
      absl::SimpleHexAtoi(text, &value);
  return is_number ? std::optional<uint32_t>(value) : std::nullopt;
}

std::optional<int> ParseInt(absl::string_view text) {
  int value = 0;
  return absl::SimpleAtoi(text, &value) ? std::optional<int>(value)
                                        : std::nullopt;
}

FabricGuess GuessFabric(const PciIds& ids, absl::string_view name) {
  if (ids.vendor == kAmazon && ids.device && *ids.device >> 8 == 0xef) {
    return {Fabric::kEfa, true,
            absl::StrFormat("PCI %04x:%04x", *ids.vendor, *ids.device)};
  }
  if (IsOtherRdmaName(name)) {
    const bool may_be_efa = ids.vendor.value_or(kAmazon) == kAmazon;
    return {may_be_efa ? Fabric::kEfa : Fabric::kUnknown, true,
            "rdma-core names neither InfiniBand nor RoCE so"};
  }
  const std::string device_class =
      ids.device_class ? absl::StrFormat("PCI class 0x%06x", *ids.device_class)
                       : "no PCI class";
  for (const NamePrefix& each : kRdmaNames) {
    if (!absl::StartsWith(name, each.prefix)) continue;
    return {each.fabric == Fabric::kUnknown ? FabricOfClass(ids) : each.fabric,
            true, absl::StrCat("RDMA device by its name, ", device_class)};
  }
  if (ids.device_class && *ids.device_class >> 8 == 0x0207) {
    return {Fabric::kInfiniBand, true, device_class};
  }
  return {Fabric::kEthernet, false, "no RDMA device is shown"};
}

bool IsOtherRdmaName(absl::string_view name) {
  return absl::StartsWith(name, "rdmap");
}

bool IsCardName(absl::string_view name) {
  return absl::c_any_of(
      std::array{"eth", "en", "bond", "team", "ib", "hsn"},
      [&](absl::string_view prefix) { return absl::StartsWith(name, prefix); });
}

LinkLayer LayerOf(Fabric fabric) {
  switch (fabric) {
    case Fabric::kInfiniBand:
    case Fabric::kOmniPath:
      return LinkLayer::kInfiniBand;
    case Fabric::kRoceV1:
    case Fabric::kRoceV2:
    case Fabric::kIwarp:
    case Fabric::kEthernet:
      return LinkLayer::kEthernet;
    default:
      return LinkLayer::kUnknown;
  }
}

void SetIds(const PciIds& ids, const std::optional<Bdf>& bdf, Nic& nic) {
  nic.bdf.value = bdf;
  if (bdf) {
    nic.card =
        absl::StrFormat("%04x:%02x:%02x", bdf->domain, bdf->bus, bdf->device);
  }
  nic.pci_class.value = ids.device_class;
  nic.vendor.value = ids.vendor;
  nic.device.value = ids.device;
}

absl::Status SortDevices(Machine& machine) {
  if (machine.gpus.size() > kMaxGpus || machine.nics.size() > kMaxNics) {
    return absl::ResourceExhaustedError(
        absl::StrCat(machine.gpus.size(), " GPUs and ", machine.nics.size(),
                     " NICs are more than ", kMaxGpus, " and ", kMaxNics));
  }
  std::vector<size_t> order(machine.gpus.size());  // new place -> old place
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return machine.gpus[a].bdf < machine.gpus[b].bdf;
  });
  std::vector<Gpu> gpus;
  std::vector<int> place(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    place[order[i]] = static_cast<int>(i);
    gpus.push_back(std::move(machine.gpus[order[i]]));
  }
  machine.gpus = std::move(gpus);
  for (GpuLink& link : machine.links) {
    link.a = place[static_cast<size_t>(link.a)];
    if (link.b >= 0) link.b = place[static_cast<size_t>(link.b)];
  }
  std::stable_sort(machine.nics.begin(), machine.nics.end(),
                   [](const Nic& a, const Nic& b) {
                     return std::tuple(!a.is_rdma, a.bdf.value) <
                            std::tuple(!b.is_rdma, b.bdf.value);
                   });
  std::stable_sort(machine.interfaces.begin(), machine.interfaces.end(),
                   [](const NetInterface& a, const NetInterface& b) {
                     return a.name < b.name;
                   });
  return absl::OkStatus();
}

Evidence Note(absl::string_view what, absl::string_view source,
              absl::string_view raw) {
  return {.what = std::string(what),
          .source = std::string(source),
          .raw = std::string(raw),
          .confidence = Confidence::kInferred};
}

}  // namespace telegrad::topology_import
