#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "topology/machine.h"

namespace telegrad::topology_import {

// More than any machine has; a hostile file stops here.
inline constexpr size_t kMaxGpus = 128;
inline constexpr size_t kMaxNics = 1024;
inline constexpr size_t kMaxPorts = 64;  // a NIC's
inline constexpr size_t kMaxLinks = 2048;
inline constexpr size_t kMaxNotes = 100;

// Numbers of a PCI function; absent ones are unknown.
struct PciIds {
  std::optional<uint32_t> device_class;  // 24 bits: 0x020700
  std::optional<uint32_t> vendor;
  std::optional<uint32_t> device;
  std::optional<uint32_t> subsystem_vendor;
  std::optional<uint32_t> subsystem_device;
};

// A PCIe switch of a chain that leads from an endpoint to the host bridge.
struct Switch {
  std::string id;
  PciIds ids;
};

// The ids of a chain, nearest first, without the second level of Broadcom's
// PEX switches: gen 4 and 5 parts show two levels that are one chip. Source:
// NCCL src/graph/topo.cc, ncclTopoFlattenBcmSwitches.
std::vector<std::string> FoldedIds(const std::vector<Switch>& nearest_first);

// "0x15b3" or "15b3"; nothing for anything else.
std::optional<uint32_t> ParseHex(absl::string_view text);
// A whole number of the text; nothing for anything else.
std::optional<int> ParseInt(absl::string_view text);

// Fills bus id, class, vendor and device, and the name of the card.
void SetIds(const PciIds& ids, const std::optional<Bdf>& bdf, Nic& nic);

// What a card speaks, from what a topology file shows of it, with the reason.
struct FabricGuess {
  Fabric fabric = Fabric::kEthernet;
  bool is_rdma = false;
  std::string why = {};
};

// From the numbers and the name: EFA by vendor and device, what RDMA drivers
// call their devices, the PCI class of InfiniBand, else plain Ethernet.
FabricGuess GuessFabric(const PciIds& ids, absl::string_view name);

// "rdmap79s0": so rdma-core calls what is none of InfiniBand, RoCE, iWARP and
// Omni-Path, as EFA is.
bool IsOtherRdmaName(absl::string_view name);

// Whether a network interface without a PCI function is one that cards have (of
// a guest, a bond): tunnels, bridges and pairs are named otherwise.
bool IsCardName(absl::string_view name);

LinkLayer LayerOf(Fabric fabric);

// Sorts GPUs by bus id (links follow them) and NICs (RDMA first, then by bus
// id), interfaces by name; ResourceExhausted above 128 GPUs or 1024 NICs.
absl::Status SortDevices(Machine& machine);

Evidence Note(absl::string_view what, absl::string_view source,
              absl::string_view raw = "");

}  // namespace telegrad::topology_import
