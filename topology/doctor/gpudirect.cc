#include <algorithm>
#include <charconv>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "topology/doctor/check.h"
#include "topology/path.h"

namespace telegrad::doctor {
namespace {

// The legs on which GPUDirect RDMA stands.
struct Leg {
  const char* key;
  Tri Capabilities::*value;
  const char* words;
};
constexpr Leg kLegs[] = {
    {"gdr_probe", &Capabilities::gdr_probe, "registration of GPU memory"},
    {"gdr_peermem", &Capabilities::gdr_peermem, "peer memory module"},
    {"gdr_dmabuf_nic", &Capabilities::gdr_dmabuf_nic, "dmabuf of the NIC"},
    {"gdr_dmabuf_gpu", &Capabilities::gdr_dmabuf_gpu, "dmabuf of the GPU"},
    {"ucx_cuda", &Capabilities::ucx_cuda, "UCX built with CUDA"},
};

// Whether dotted version `text` is below `major`.`minor`.
bool IsBelow(const std::string& text, int major, int minor) {
  int parts[2] = {0, 0};
  const char* begin = text.data();
  const char* end = begin + text.size();
  for (int& part : parts) {
    const std::from_chars_result read = std::from_chars(begin, end, part);
    if (read.ec != std::errc()) return false;
    begin = read.ptr == end ? end : read.ptr + 1;
  }
  return parts[0] < major || (parts[0] == major && parts[1] < minor);
}

// How to switch ACS off on the bridges whose control register the evidence
// names by its file ("/sys/devices/.../0000:80:01.0/config").
std::string AcsHint(const Machine& machine) {
  constexpr char kClear[] = " ECAP_ACS+0x6.w=0000";
  std::vector<std::string> commands;
  const auto why = machine.capabilities.why.find("acs_clear");
  if (why != machine.capabilities.why.end()) {
    for (const Evidence& each : why->second) {
      const std::vector<absl::string_view> parts =
          absl::StrSplit(each.source, '/');
      Bdf bridge;
      if (parts.size() < 2 || parts.back() != "config" ||
          !ParseBdf(parts[parts.size() - 2], &bridge)) {
        continue;
      }
      commands.push_back(absl::StrCat("setpci -s ", ToString(bridge), kClear));
    }
  }
  if (commands.empty()) {
    return "switch ACS off in the BIOS; the bridges that have it on: lspci "
           "-vvv | grep -E '^[0-9a-f]|ACSCtl'";
  }
  return absl::StrCat(
      "as root, again after each boot: ", absl::StrJoin(commands, "; "),
      "; or switch ACS off in the BIOS");
}

// Whether some GPU has an RDMA NIC at most `limit` away.
bool AnyWithin(const Machine& machine, PathClass limit) {
  for (const auto& row : machine.gpu_nic) {
    for (size_t n = 0; n < row.size() && n < machine.nics.size(); ++n) {
      if (machine.nics[n].is_rdma && row[n].path <= limit) return true;
    }
  }
  return false;
}

}  // namespace

void CheckGdr(const Machine& machine, const DoctorOptions&, Report& report) {
  const Capabilities& has = machine.capabilities;
  if (!HasGpuAndRdma(machine)) {
    return report.Ok("GPUDirect RDMA needs a GPU and an RDMA device");
  }
  if (has.gdr == Tri::kYes) {
    return report.Ok("GPUDirect RDMA works", Why(machine, "gdr"));
  }
  std::vector<std::string> legs;
  for (const Leg& leg : kLegs) {
    const Tri value = has.*leg.value;
    if (value == Tri::kYes) continue;
    const std::string why = Why(machine, leg.key);
    legs.push_back(absl::StrCat(leg.words, ": ", Name(value),
                                why.empty() ? "" : " (", why,
                                why.empty() ? "" : ")"));
  }
  if (!AnyWithin(machine, PathClass::kPxb)) {
    legs.push_back("no GPU has an RDMA NIC behind its own PCIe switches");
  }
  report.Add(Level::kWarn,
             absl::StrCat("GPUDirect RDMA is ",
                          has.gdr == Tri::kNo ? "off" : "not proven",
                          "; gradients go through pinned host memory"),
             absl::StrJoin(legs, "; "),
             "modprobe nvidia-peermem, or the open kernel modules for dmabuf; "
             "then telegrad-topo doctor --probe");
}

void CheckModuleRename(const Machine& machine, const DoctorOptions&,
                       Report& report) {
  const Capabilities& has = machine.capabilities;
  if (has.gdr_peermem != Tri::kYes || has.ucx_version.empty()) {
    return report.Ok("there is no peer memory module that UCX could overlook");
  }
  const std::string why = Why(machine, "gdr_peermem");
  const bool is_new_only = absl::StrContains(why, "nvidia_peermem") &&
                           !absl::StrContains(why, "memory_peers/nv_mem");
  if (!is_new_only || !IsBelow(has.ucx_version, 1, 18)) {
    return report.Ok(absl::StrCat("UCX ", has.ucx_version,
                                  " looks for the module where it is"));
  }
  report.Add(Level::kWarn,
             absl::StrCat("UCX ", has.ucx_version,
                          " does not see nvidia_peermem and silently stages "
                          "through the host"),
             why,
             "use UCX 1.18 or newer, or dmabuf with 1.14 or newer and the open "
             "kernel modules");
}

void CheckAcs(const Machine& machine, const DoctorOptions&, Report& report) {
  if (!HasGpuAndRdma(machine)) {
    return report.Ok("no GPU talks to an RDMA device");
  }
  const std::string why = Why(machine, "acs_clear");
  switch (machine.capabilities.acs_clear) {
    case Tri::kYes:
      return report.Ok("no switch redirects peer to peer traffic", why);
    case Tri::kNo:
      return report.Add(Level::kWarn,
                        "PCIe ACS sends traffic between GPU and NIC through "
                        "the root complex",
                        why, AcsHint(machine));
    case Tri::kUnknown:
      break;
  }
  report.Add(Level::kUnknown, "PCIe ACS cannot be read", why,
             "as root: lspci -vvv | grep -i acsctl");
}

void CheckIommu(const Machine& machine, const DoctorOptions&, Report& report) {
  if (!HasGpuAndRdma(machine)) {
    return report.Ok("no GPU talks to an RDMA device");
  }
  const std::string why = Why(machine, "iommu_passthrough");
  switch (machine.capabilities.iommu_passthrough) {
    case Tri::kYes:
      return report.Ok("the IOMMU is off or passes through", why);
    case Tri::kNo:
      return report.Add(Level::kWarn,
                        "the IOMMU translates DMA; peer to peer traffic of "
                        "GPUs may hang or be slow",
                        why,
                        "boot with iommu=pt (and intel_iommu=on or "
                        "amd_iommu=on)");
    case Tri::kUnknown:
      break;
  }
  report.Add(Level::kUnknown, "the IOMMU's mode is unknown", why,
             "cat /proc/cmdline; cat /sys/kernel/iommu_groups/*/type");
}

}  // namespace telegrad::doctor
