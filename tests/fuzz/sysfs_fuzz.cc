// libFuzzer: detection over /sys and /proc trees of any content. What was
// detected must survive being written and read as JSON, which is tried for one
// input of sixteen.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "topology/detect.h"
#include "topology/machine_json.h"

namespace {

// Files and folders that detection looks at.
constexpr std::array kPaths = {
    "ERRNO",
    "dev/infiniband/uverbs0",
    "proc/1/cgroup",
    "proc/cmdline",
    "proc/cpuinfo",
    "proc/driver/nvidia/gpus/0000:01:00.0/information",
    "proc/driver/nvidia/version",
    "proc/kallsyms",
    "proc/self/limits",
    "proc/self/status",
    "proc/sys/kernel/hostname",
    "sys/bus/pci/devices/0000:01:00.0",
    "sys/class/iommu/dmar0",
    "sys/class/infiniband/mlx5_0",
    "sys/class/infiniband/mlx5_0/board_id",
    "sys/class/infiniband/mlx5_0/device",
    "sys/class/infiniband/mlx5_0/device/class",
    "sys/class/infiniband/mlx5_0/device/net/eth0",
    "sys/class/infiniband/mlx5_0/node_type",
    "sys/class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0",
    "sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types/0",
    "sys/class/infiniband/mlx5_0/ports/1/gids/0",
    "sys/class/infiniband/mlx5_0/ports/1/lid",
    "sys/class/infiniband/mlx5_0/ports/1/link_layer",
    "sys/class/infiniband/mlx5_0/ports/1/rate",
    "sys/class/infiniband/mlx5_0/ports/1/state",
    "sys/class/net/eth0",
    "sys/class/net/eth0/bonding/slaves",
    "sys/class/net/eth0/device",
    "sys/class/net/eth0/ecn/roce_np/enable/3",
    "sys/class/net/eth0/mtu",
    "sys/class/net/eth0/operstate",
    "sys/class/net/eth0/speed",
    "sys/class/net/eth0/type",
    "sys/class/net/eth0/uevent",
    "sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/class",
    "sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/max_link_speed",
    "sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/max_link_width",
    "sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/numa_node",
    "sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/vendor",
    "sys/devices/pci0000:00/0000:00:01.0/config",
    "sys/devices/system/node/node0/cpulist",
    "sys/devices/system/node/online",
};
constexpr uint8_t kLink = 0x80;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using telegrad::MemoryTree;
  using telegrad::SysRoot;
  auto tree = std::make_unique<MemoryTree>();
  tree->AddFolder("sys/class");
  // Records: which path, how long, the bytes.
  for (size_t at = 0; at + 2 <= size;) {
    const uint8_t which = data[at];
    const size_t length = std::min<size_t>(data[at + 1], size - at - 2);
    std::string text(reinterpret_cast<const char*>(data) + at + 2, length);
    const char* path = kPaths[(which & 0x7fU) % kPaths.size()];
    if ((which & kLink) != 0) {
      // A link to another of these places, so that some lead somewhere.
      const size_t target = text.empty() ? 0 : static_cast<uint8_t>(text[0]);
      tree->AddLink(path, std::string("/") + kPaths[target % kPaths.size()]);
    } else {
      tree->AddFile(path, std::move(text));
    }
    at += 2 + length;
  }
  const auto root = SysRoot::FromTree(std::move(tree), "fuzz");
  if (!root.ok()) return 0;
  const auto machine = telegrad::DetectMachine(*root, {});
  if (!machine.ok()) std::abort();
  // A dump costs ten times the detection.
  if (size % 16 != 0) return 0;
  const auto again = telegrad::MachineFromJson(telegrad::ToJson(*machine, -1));
  if (!again.ok() || *again != *machine) std::abort();
  return 0;
}
