#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "topology/fact.h"

namespace telegrad {

// The address of a PCI function: "0000:81:00.0". Virtual machines have domains
// beyond 16 bits (Azure, VMD).
struct Bdf {
  uint32_t domain = 0;
  uint8_t bus = 0;
  uint8_t device = 0;
  uint8_t function = 0;
  auto operator<=>(const Bdf&) const = default;
};

enum class LinkLayer : uint8_t { kInfiniBand, kEthernet, kUnknown };

// What a port of a network card speaks; JSON and text say IB, RoCEv2, RoCEv1,
// EFA, iWARP, OmniPath, Ethernet, unknown.
enum class Fabric : uint8_t {
  kInfiniBand,
  kRoceV2,
  kRoceV1,
  kEfa,
  kIwarp,
  kOmniPath,
  kEthernet,
  kUnknown
};

// Class of the path between two devices, nearest first: the same device,
// NVLink, chip to chip, one PCIe switch, several switches, one host bridge, one
// NUMA node, across sockets.
enum class PathClass : uint8_t {
  kLoc,
  kNvl,
  kC2c,
  kPix,
  kPxb,
  kPhb,
  kNode,
  kSys,
  kUnknown
};

enum class GidType : uint8_t { kNone, kRoceV1, kRoceV2, kInfiniBand };
enum class GidScope : uint8_t { kEmpty, kLinkLocal, kIpv4, kIpv6 };

// One row of a port's GID table that could be read.
struct Gid {
  int index = 0;
  std::array<uint8_t, 16> raw{};
  GidType type = GidType::kNone;
  GidScope scope = GidScope::kEmpty;
  std::string net_interface = {};  // empty: none or unknown
  bool operator==(const Gid&) const = default;
};

struct Port {
  int number = 1;
  LinkLayer link_layer = LinkLayer::kUnknown;
  Fabric fabric = Fabric::kUnknown;
  Known<int> state = {};           // 4: active (IBA enumeration)
  Known<int> physical_state = {};  // 5: link up
  Known<double> gbps = {};         // gigabits/s, one direction
  Known<int> lanes = {};           // 1, 2, 4, 8, 12
  Known<int> active_mtu = {};      // bytes; for RoCE derived from the interface
  Known<uint32_t> lid = {};
  std::vector<Gid> gids = {};
  // Rows of the GID table that could be read, empty ones too; unknown: there is
  // no table, or a source that has no empty rows (hwloc).
  Known<int> gid_rows = {};
  Known<int> chosen_gid = {};  // index to use on this port, with the reasons
  std::string net_interface = {};  // the chosen GID's interface, or the port's
  bool operator==(const Port&) const = default;
};

inline bool IsRoce(const Port& port) {
  return port.fabric == Fabric::kRoceV1 || port.fabric == Fabric::kRoceV2;
}

// Whether the source shows a GID table; of one that does not, nothing is known.
inline bool ShowsGids(const Port& port) {
  return port.gid_rows.known() || !port.gids.empty();
}

// Where a device hangs in the PCI tree, as far as the source shows it.
struct PciPosition {
  std::vector<std::string> switches = {};  // folded, nearest first
  std::string host_bridge = {};            // "pci0000:80"; empty: unknown
  int package = -1;                        // socket; -1: unknown
  int numa_node = -1;                      // -1: unknown
  bool operator==(const PciPosition&) const = default;
};

// A network card as RDMA or plain Ethernet software sees it: one RDMA device,
// or one physical network interface that no RDMA device has.
struct Nic {
  std::string name = {};           // "mlx5_0", "eth0"
  Known<Bdf> bdf = {};             // unknown: virtual, or the source is silent
  std::string card = {};           // equal for functions of one card
  std::string driver = {};         // empty: unknown
  std::string board = {};          // hca_type, board_id or model
  Known<uint32_t> pci_class = {};  // 0x020700
  Known<uint32_t> vendor = {};     // 0x15b3
  Known<uint32_t> device = {};
  Known<int> node_type = {};     // 1 CA, 4 RNIC, 7 unspecified
  Known<double> pcie_gbps = {};  // its slot's rate, by maximum speed and width
  Known<double> pcie_now_gbps = {};     // its rate by current speed and width
  Tri has_device_node = Tri::kUnknown;  // /dev/infiniband/uverbsN
  bool is_rdma = false;
  std::vector<std::string> net_interfaces = {};
  PciPosition position = {};
  std::vector<Port> ports = {};  // plain Ethernet has one
  bool operator==(const Nic&) const = default;
};

// An interface of the kernel's network stack.
struct NetInterface {
  enum class Kind : uint8_t {
    kPhysical,
    kVirtualDevice,  // a guest's own card without a PCI function (virtio, ...)
    kLoopback,
    kBridge,
    kBond,
    kVlan,
    kVxlan,
    kVeth,
    kTunnel,
    kIpoib,
    kOther
  };
  std::string name = {};
  Kind kind = Kind::kOther;
  Known<bool> up = {};
  Known<int> mtu = {};
  Known<double> gbps = {};
  Known<int> numa_node = {};
  // Interfaces below a bond, VLAN or bridge.
  std::vector<std::string> lower = {};
  std::vector<std::string> addresses = {};  // "192.0.2.1", "fd00::1"
  std::map<int, bool> ecn_np = {};  // priority -> RoCE notification point on
  std::map<int, bool> ecn_rp = {};  // priority -> RoCE reaction point on
  bool operator==(const NetInterface&) const = default;
};

struct Gpu {
  std::string name = {};  // "cuda0", "nvml3", or the bus id
  Bdf bdf = {};
  std::string model = {};
  std::string uuid = {};
  Known<int> compute_capability = {};  // 90 for 9.0
  Known<bool> dmabuf = {};             // can export its memory
  PciPosition position = {};
  bool operator==(const Gpu&) const = default;
};

// A link that is not PCIe. `a` and `b` index Machine::gpus; b == kToSwitch: an
// NVSwitch that `b_name` names, b == kToCpu: chip to chip.
struct GpuLink {
  static constexpr int kToSwitch = -1;
  static constexpr int kToCpu = -2;
  int a = 0;
  int b = kToSwitch;
  std::string b_name = {};
  int lanes = 0;
  Known<double> gbytes_per_s = {};  // all lanes, one direction
  bool operator==(const GpuLink&) const = default;
};

// Functions of a machine and its software. Each key of `why` is the name of a
// member.
struct Capabilities {
  Tri gdr = Tri::kUnknown;  // GPUDirect RDMA: the verdict over those below
  Tri gdr_peermem = Tri::kUnknown;
  Tri gdr_dmabuf_nic = Tri::kUnknown;
  Tri gdr_dmabuf_gpu = Tri::kUnknown;
  Tri gdr_probe = Tri::kUnknown;  // registration of GPU memory was tried
  Tri gdrcopy = Tri::kUnknown;
  Tri ucx_cuda = Tri::kUnknown;
  Tri ucx_rdma = Tri::kUnknown;
  Tri ofi_efa = Tri::kUnknown;
  Tri ofi_hmem = Tri::kUnknown;
  Tri rdma_device_nodes = Tri::kUnknown;
  Tri acs_clear = Tri::kUnknown;  // no redirection between GPU and NIC
  Tri iommu_passthrough = Tri::kUnknown;
  Tri in_vm = Tri::kUnknown;
  Tri in_container = Tri::kUnknown;
  Known<uint64_t> memlock_bytes = {};  // limit; UINT64_MAX: none
  Known<double> cpu_limit = {};        // CPUs' time that a process may take
  Known<uint64_t> memory_limit_bytes = {};  // its groups'; UINT64_MAX: none
  Known<uint64_t> shm_bytes = {};           // /dev/shm: free, or its size
  std::string ucx_version = {};             // "1.13.1"; empty: not there
  std::string ofi_version = {};
  std::map<std::string, std::vector<Evidence>> why = {};
  bool operator==(const Capabilities&) const = default;
};

struct PathInfo {
  PathClass path = PathClass::kUnknown;  // over all links
  PathClass pcie = PathClass::kUnknown;  // without NVLink
  std::string why = {};                  // why `path` is what it is
  bool operator==(const PathInfo&) const = default;
};

// What hardware and software one machine has: of a live machine, of a dump, of
// a recorded sysfs tree, hwloc XML or NCCL XML, all the same type.
struct Machine {
  std::string source = {};  // "live", or the file it was read from
  std::string host = {};
  std::string arch = {};
  int numa_nodes = 0;                         // 0: unknown
  int cpus = 0;                               // 0: unknown
  std::vector<Gpu> gpus = {};                 // ascending bus id
  std::vector<Nic> nics = {};                 // RDMA devices first
  std::vector<NetInterface> interfaces = {};  // by name
  std::vector<GpuLink> links = {};
  std::vector<std::vector<PathInfo>> gpu_nic = {};  // [gpu][nic]
  std::vector<std::vector<PathInfo>> gpu_gpu = {};  // [gpu][gpu]
  Capabilities capabilities = {};
  std::map<std::string, std::string> environment =
      {};                            // UCX_*, NCCL_*, FI_*, ...
  std::vector<Evidence> notes = {};  // what was skipped or looked wrong
  bool operator==(const Machine&) const = default;
};

}  // namespace telegrad
