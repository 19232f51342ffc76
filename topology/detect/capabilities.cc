#include <algorithm>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "topology/detect/host.h"

namespace telegrad::detect {
namespace {

constexpr size_t kMaxReasons = 16;

Evidence Says(std::string what, std::string source, std::string raw = {},
              Confidence confidence = Confidence::kReported) {
  return {.what = std::move(what),
          .source = std::move(source),
          .raw = std::move(raw),
          .confidence = confidence};
}

// Yes or no by the presence of `path`; unknown where the tree cannot show it.
Tri IsThere(const SysRoot& root, const std::string& path,
            std::vector<Evidence>& why) {
  if (root.Exists(path)) {
    why.push_back(Says("is there", path));
    return Tri::kYes;
  }
  const bool covers = root.Covers(path);
  why.push_back(
      Says(covers ? "is not there" : "the source does not show it", path));
  return covers ? Tri::kNo : Tri::kUnknown;
}

// Modules that let a card read GPU memory: nvidia_peermem, and MOFED's
// nv_peer_mem, which older kernels register elsewhere.
void FindPeerMemory(const SysRoot& root, Capabilities& capabilities) {
  std::vector<Evidence>& why = capabilities.why["gdr_peermem"];
  Tri any = IsThere(root, "/sys/module/nvidia_peermem", why);
  for (const char* path :
       {"/sys/module/nv_peer_mem", "/sys/kernel/mm/memory_peers/nv_mem",
        "/sys/kernel/mm/memory_peers/nv_mem_nc"}) {
    if (any == Tri::kYes) break;
    if (root.Exists(path)) any = IsThere(root, path, why);
  }
  capabilities.gdr_peermem = any;
}

void FindDmabuf(const SysRoot& root, Machine& machine) {
  Capabilities& capabilities = machine.capabilities;
  const Line driver = ReadLine(root, "/proc/driver/nvidia/version");
  if (driver.ok()) {
    const bool is_open = absl::StrContains(driver.text, "Open Kernel Module");
    capabilities.gdr_dmabuf_gpu = is_open ? Tri::kYes : Tri::kNo;
    capabilities.why["gdr_dmabuf_gpu"].push_back(
        driver.Why(is_open ? "open kernel modules export GPU memory"
                           : "the closed kernel module exports no GPU memory",
                   Confidence::kInferred));
  }
  const bool has_rdma = std::any_of(machine.nics.begin(), machine.nics.end(),
                                    [](const Nic& nic) { return nic.is_rdma; });
  if (!has_rdma) return;  // the list of symbols is long
  constexpr size_t kSymbols = 32UL * 1024 * 1024;
  const FileText symbols = root.Read("/proc/kallsyms", kSymbols);
  if (symbols.error != 0 || symbols.text.empty()) return;
  const bool has = symbols.text.find("ib_umem_dmabuf_get") != std::string::npos;
  // A hidden list looks like an empty one: no is not certain.
  capabilities.gdr_dmabuf_nic = has ? Tri::kYes : Tri::kUnknown;
  capabilities.why["gdr_dmabuf_nic"].push_back(
      Says(has ? "the kernel has ib_umem_dmabuf_get"
               : "ib_umem_dmabuf_get is absent or hidden",
           "/proc/kallsyms", "", Confidence::kInferred));
}

void FindDeviceNodes(const SysRoot& root, Machine& machine) {
  Capabilities& capabilities = machine.capabilities;
  std::vector<Evidence>& why = capabilities.why["rdma_device_nodes"];
  Tri all = IsThere(root, "/dev/infiniband", why);
  for (const Nic& nic : machine.nics) {
    if (!nic.is_rdma || nic.has_device_node == Tri::kYes) continue;
    if (nic.has_device_node == Tri::kNo) all = Tri::kNo;
    why.push_back(
        Says(absl::StrCat(nic.name, ": /dev/infiniband/uverbsN ",
                          nic.has_device_node == Tri::kNo ? "is not there"
                                                          : "was not seen"),
             "/dev/infiniband"));
  }
  capabilities.rdma_device_nodes = all;
  capabilities.gdrcopy =
      IsThere(root, "/dev/gdrdrv", capabilities.why["gdrcopy"]);
}

void FindMemlock(const SysRoot& root, Capabilities& capabilities) {
  constexpr int64_t kIpcLock = 14;  // linux/capability.h
  const Line limits = ReadLine(root, "/proc/self/limits");
  for (const absl::string_view line : absl::StrSplit(limits.text, '\n')) {
    if (!absl::StartsWith(line, "Max locked memory")) continue;
    const std::vector<absl::string_view> words =
        absl::StrSplit(line, ' ', absl::SkipEmpty());
    uint64_t bytes = 0;
    if (words.size() > 3 && words[3] == "unlimited") {
      capabilities.memlock_bytes.value = UINT64_MAX;
    } else if (words.size() > 3 && absl::SimpleAtoi(words[3], &bytes)) {
      capabilities.memlock_bytes.value = bytes;
    }
    capabilities.memlock_bytes.why.push_back(
        Says("limit of locked memory", limits.path, Printable(line)));
  }
  const Line status = ReadLine(root, "/proc/self/status", 16384);
  for (const absl::string_view line : absl::StrSplit(status.text, '\n')) {
    uint64_t bits = 0;
    if (!absl::StartsWith(line, "CapEff:") ||
        !absl::SimpleHexAtoi(absl::StripAsciiWhitespace(line.substr(7)),
                             &bits)) {
      continue;
    }
    const bool is_lifted = (bits >> kIpcLock & 1U) != 0;
    if (is_lifted) capabilities.memlock_bytes.value = UINT64_MAX;
    capabilities.memlock_bytes.why.push_back(
        Says(is_lifted ? "CAP_IPC_LOCK lifts the limit"
                       : "no CAP_IPC_LOCK, which would lift it",
             status.path, Printable(line)));
  }
}

// PCI folders of GPUs and cards.
std::vector<std::string> Endpoints(const PciTree& pci, const Machine& machine) {
  std::vector<std::string> folders;
  const auto add = [&](const Bdf& bdf) {
    const std::string folder =
        pci.FolderOf("/sys/bus/pci/devices/" + ToString(bdf));
    if (!folder.empty()) folders.push_back(folder);
  };
  for (const Gpu& gpu : machine.gpus) add(gpu.bdf);
  for (const Nic& nic : machine.nics) {
    if (nic.bdf.known()) add(*nic.bdf.value);
  }
  return folders;
}

void FindIommu(const SysRoot& root, const PciTree& pci, Machine& machine) {
  Capabilities& capabilities = machine.capabilities;
  std::vector<Evidence>& why = capabilities.why["iommu_passthrough"];
  if (root.Exists("/sys/class/iommu") &&
      root.List("/sys/class/iommu").empty()) {
    capabilities.iommu_passthrough = Tri::kYes;
    why.push_back(Says("no IOMMU is active", "/sys/class/iommu"));
    return;
  }
  bool any = false;
  bool all_identity = true;
  for (const std::string& folder : Endpoints(pci, machine)) {
    const Line type = ReadLine(root, folder + "/iommu_group/type");
    if (!type.ok()) continue;
    any = true;
    if (type.text != "identity") {
      all_identity = false;
      if (why.size() < kMaxReasons) {
        why.push_back(type.Why("addresses are translated"));
      }
    }
  }
  if (any) {
    capabilities.iommu_passthrough = all_identity ? Tri::kYes : Tri::kNo;
    if (all_identity) why.push_back(Says("all are identity", "iommu_group"));
    return;
  }
  const Line command = ReadLine(root, "/proc/cmdline");
  if (absl::StrContains(command.text, "iommu=pt") ||
      absl::StrContains(command.text, "iommu.passthrough=1")) {
    capabilities.iommu_passthrough = Tri::kYes;
    why.push_back(command.Why("iommu=pt", Confidence::kInferred));
  }
}

// Control register of ACS (PCI Express Base 7.7.8), in extended space, which
// root alone may read; none without that capability.
std::optional<uint32_t> AcsControl(const std::string& space) {
  constexpr uint32_t kAcs = 0x000d;
  const auto word = [&](size_t at) {
    uint32_t value = 0;
    for (size_t i = 0; i < 4 && at + i < space.size(); ++i) {
      value |= static_cast<uint32_t>(static_cast<uint8_t>(space[at + i]))
               << (8 * i);
    }
    return value;
  };
  size_t at = 0x100;
  for (int i = 0; at >= 0x100 && at + 8 <= space.size() && i < 960; ++i) {
    const uint32_t header = word(at);
    if ((header & 0xffffU) == kAcs) return word(at + 4) >> 16U;
    at = header >> 20U & 0xffcU;
  }
  return std::nullopt;
}

void FindAcs(const SysRoot& root, const PciTree& pci, Machine& machine) {
  constexpr size_t kSpace = 4096;
  constexpr uint32_t kRedirects = 0x1c;  // request, completion, upstream
  constexpr size_t kMaxBridges = 64;     // each is to be mended
  Capabilities& capabilities = machine.capabilities;
  std::vector<Evidence>& why = capabilities.why["acs_clear"];
  std::set<std::string> bridges;
  for (const std::string& folder : Endpoints(pci, machine)) {
    for (std::string& each : pci.BridgesAbove(folder)) {
      bridges.insert(std::move(each));
    }
  }
  bool is_readable = !bridges.empty();
  bool is_clear = true;
  for (const std::string& bridge : bridges) {
    const std::string path = bridge + "/config";
    const std::string space = root.Read(path, kSpace).text;
    is_readable = is_readable && space.size() > 256;
    const uint32_t control = AcsControl(space).value_or(0);
    if ((control & kRedirects) == 0) continue;
    is_clear = false;
    if (why.size() >= kMaxBridges) continue;
    why.push_back(Says("ACS redirects traffic between devices", path,
                       absl::StrCat("0x", absl::Hex(control))));
  }
  if (!is_clear) {
    capabilities.acs_clear = Tri::kNo;
  } else if (is_readable) {
    capabilities.acs_clear = Tri::kYes;
    why.push_back(Says("no bridge redirects", "config space of bridges"));
  } else {
    why.push_back(Says(bridges.empty()
                           ? "no bridge above a GPU or a card is visible"
                           : "config space behind 256 bytes is for root",
                       "config space of bridges"));
  }
}

}  // namespace

void AddCapabilities(const SysRoot& root, const PciTree& pci,
                     Machine& machine) {
  FindPeerMemory(root, machine.capabilities);
  FindDmabuf(root, machine);
  FindDeviceNodes(root, machine);
  FindMemlock(root, machine.capabilities);
  FindIommu(root, pci, machine);
  FindAcs(root, pci, machine);
}

}  // namespace telegrad::detect
