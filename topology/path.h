#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "topology/machine.h"

namespace telegrad {

// The class of the path between two devices from their places in the PCI tree:
// one switch PIX, several PXB, one host bridge PHB, one package (or NUMA node
// where packages are unknown) NODE, else SYS; unknown where the source shows
// too little. Source: NCCL's src/graph/paths.cc, and nvidia-smi for NODE.
PathInfo ClassifyPath(const PciPosition& a, const PciPosition& b);

// Fills `gpu_nic` and `gpu_gpu` from positions and links, by sorted GPUs:
// NVLink (direct, or through NVSwitches that both reach) outranks PCIe between
// GPUs. Where PCIe goes through one CPU (PHB, NODE) and each GPU of the pair
// has its own link to it, the path is C2C.
void FillPaths(Machine& machine);

// Less is nearer, unknown farthest. Through a CPU's own link (C2C) is farther
// than PCIe switches, nearer than a host bridge. Source: P2C of NCCL's
// src/graph/graph.h.
int Distance(PathClass path);

// Reads "0000:81:00.0", "81:00.0" or "10000:e1:00.0"; false for anything else.
bool ParseBdf(absl::string_view text, Bdf* bdf);
std::string ToString(const Bdf& bdf);  // "0000:81:00.0"

// Whether a PCI function of that class (24 bits) and vendor computes: display
// controllers of NVIDIA, and of AMD and Intel those without a screen, and AMD's
// accelerators. A board's own VGA never does.
bool IsGpuFunction(uint32_t device_class, uint32_t vendor);

// The words of text and JSON: "IB", "PIX", "yes".
const char* Name(Fabric fabric);
const char* Name(PathClass path);
const char* Name(LinkLayer layer);
const char* Name(GidType type);
const char* Name(GidScope scope);
const char* Name(Tri tri);
const char* Name(Confidence confidence);
const char* Name(NetInterface::Kind kind);

}  // namespace telegrad
