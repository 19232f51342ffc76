#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "topology/doctor.h"
#include "topology/path.h"

namespace telegrad {

// Machines built in code, for tests of the doctor.

inline Bdf BdfOf(const char* text) {
  Bdf bdf;
  EXPECT_TRUE(ParseBdf(text, &bdf)) << text;
  return bdf;
}

template <typename T>
Known<T> Is(T value) {
  return {.value = value, .why = {{.what = "", .source = "test"}}};
}

inline Gid RoceGid(int index, GidScope scope, GidType type, const char* net) {
  Gid gid = {
      .index = index, .type = type, .scope = scope, .net_interface = net};
  if (scope == GidScope::kIpv4) {
    gid.raw = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1};
  } else {
    gid.raw = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 2, 3, 4, 5, 6, 7, 8, 9};
  }
  return gid;
}

// Two GPUs, each with a RoCE NIC behind its own switch; nothing is wrong.
inline Machine Healthy() {
  Machine machine = {.source = "test", .host = "node0", .numa_nodes = 1};
  for (int i = 0; i < 2; ++i) {
    const std::string net = i == 0 ? "eth0" : "eth1";
    const PciPosition position = {.switches = {i == 0 ? "s0" : "s1"},
                                  .host_bridge = "pci0000:00",
                                  .package = 0,
                                  .numa_node = 0};
    machine.gpus.push_back(
        {.name = i == 0 ? "cuda0" : "cuda1",
         .bdf = BdfOf(i == 0 ? "0000:01:00.0" : "0000:02:00.0"),
         .model = "H100",
         .position = position});
    Port port = {
        .link_layer = LinkLayer::kEthernet,
        .fabric = Fabric::kRoceV2,
        .state = Is(4),
        .gbps = Is(400.0),
        .lanes = Is(4),
        .active_mtu = Is(4096),
        .gids = {RoceGid(0, GidScope::kLinkLocal, GidType::kRoceV2,
                         net.c_str()),
                 RoceGid(3, GidScope::kIpv4, GidType::kRoceV2, net.c_str())},
        .chosen_gid = Is(3),
        .net_interface = net};
    machine.nics.push_back(
        {.name = i == 0 ? "mlx5_0" : "mlx5_1",
         .bdf = Is(BdfOf(i == 0 ? "0000:11:00.0" : "0000:12:00.0")),
         .pcie_gbps = Is(504.0),
         .pcie_now_gbps = Is(504.0),
         .has_device_node = Tri::kYes,
         .is_rdma = true,
         .net_interfaces = {net},
         .position = position,
         .ports = {port}});
    machine.interfaces.push_back({.name = net,
                                  .kind = NetInterface::Kind::kPhysical,
                                  .up = Is(true),
                                  .mtu = Is(9000),
                                  .gbps = Is(400.0),
                                  .ecn_np = {{3, true}},
                                  .ecn_rp = {{3, true}}});
  }
  Capabilities& has = machine.capabilities;
  has.gdr = Tri::kYes;
  has.acs_clear = Tri::kYes;
  has.iommu_passthrough = Tri::kYes;
  has.in_vm = Tri::kNo;
  has.memlock_bytes = Is(UINT64_MAX);
  has.cpu_limit = Is(64.0);
  has.memory_limit_bytes = Is(UINT64_MAX);
  has.shm_bytes = Is(uint64_t{1} << 36);
  has.ucx_version = "1.18.0";
  has.ucx_cuda = Tri::kYes;
  has.ucx_rdma = Tri::kYes;
  FillPaths(machine);
  return machine;
}

inline DoctorOptions WithCodec(double link_gbps) {
  return {.codec = CodecSpeed{.codec = "2bit",
                              .encode_gbytes_per_s = 5,
                              .decode_gbytes_per_s = 10,
                              .break_even_gbps = 64,
                              .link_gbps = link_gbps}};
}

inline std::vector<Finding> WithId(std::vector<Finding> findings,
                                   const std::string& id) {
  std::erase_if(findings, [&](const Finding& each) { return each.id != id; });
  return findings;
}

// One change to a healthy machine, and what the check says of it.
struct DoctorCase {
  const char* id;
  Level severity;
  const char* word;  // of its sentence
  std::function<void(Machine&)> change;
};

inline const std::vector<DoctorCase>& DoctorCases() {
  static const std::vector<DoctorCase> cases = {
      {"T01", Level::kFail, "mlx5_1",
       [](Machine& m) { m.nics[1].has_device_node = Tri::kNo; }},
      {"T01", Level::kUnknown, "/dev/infiniband",
       [](Machine& m) { m.nics[1].has_device_node = Tri::kUnknown; }},
      {"T02", Level::kFail, "65536",
       [](Machine& m) { m.capabilities.memlock_bytes = Is(uint64_t{65536}); }},
      {"T02", Level::kUnknown, "limit",
       [](Machine& m) { m.capabilities.memlock_bytes = {}; }},
      {"T03", Level::kUnknown, "which RDMA ports are active",
       [](Machine& m) { m.nics[1].ports[0].state = {}; }},
      {"T04", Level::kUnknown, "which RDMA ports are active",
       [](Machine& m) { m.nics[1].ports[0].state = {}; }},
      {"T03", Level::kWarn, "mlx5_1/1",
       [](Machine& m) { m.nics[1].ports[0].state = Is(2); }},
      {"T03", Level::kWarn, "mlx5_1/1 is not active (state 1)",
       [](Machine& m) { m.nics[1].ports[0].state = Is(1); }},
      {"T04", Level::kWarn, "mlx5_1",
       [](Machine& m) {
         m.nics[1].ports[0].fabric = Fabric::kInfiniBand;
         m.nics[1].ports[0].link_layer = LinkLayer::kInfiniBand;
       }},
      {"T05", Level::kFail, "mlx5_0/1",
       [](Machine& m) {
         m.nics[0].ports[0].gids.pop_back();
         m.nics[0].ports[0].chosen_gid = {};
       }},
      {"T05", Level::kFail, "mlx5_1/1",
       [](Machine& m) {
         m.nics[1].ports[0].gids.clear();
         m.nics[1].ports[0].gid_rows = Is(4);
         m.nics[1].ports[0].chosen_gid = {};
       }},
      {"T05", Level::kFail, "mlx5_0/1",
       [](Machine& m) {
         m.nics[0].ports[0].gids.clear();
         m.nics[0].ports[0].gid_rows = Is(4);
         m.nics[0].ports[0].chosen_gid = {};
         m.nics[0].ports[0].net_interface = "";
       }},
      {"T05", Level::kUnknown, "mlx5_1/1",
       [](Machine& m) {
         m.nics[1].ports[0].gids.clear();
         m.nics[1].ports[0].chosen_gid = {};
       }},
      {"T06", Level::kWarn, "vxlan0",
       [](Machine& m) {
         m.nics[0].ports[0].gids.push_back(
             RoceGid(5, GidScope::kIpv4, GidType::kRoceV2, "vxlan0"));
       }},
      {"T06", Level::kWarn, "RoCE v1",
       [](Machine& m) {
         m.nics[0].ports[0].gids[1].type = GidType::kRoceV1;
         m.nics[0].ports[0].fabric = Fabric::kRoceV1;
       }},
      {"T08", Level::kWarn, "MTU 1500",
       [](Machine& m) { m.interfaces[0].mtu = Is(1500); }},
      {"T09", Level::kWarn, "100 Gb/s",
       [](Machine& m) { m.nics[1].ports[0].gbps = Is(100.0); }},
      {"T09", Level::kWarn, "252 Gb/s",
       [](Machine& m) { m.nics[1].pcie_now_gbps = Is(252.0); }},
      {"T09", Level::kWarn, "1 lanes",
       [](Machine& m) {
         for (Nic& nic : m.nics) nic.ports[0].gbps = Is(25.0);
         m.nics[0].ports[0].lanes = Is(1);
       }},
      {"T10", Level::kInfo, "eth1",
       [](Machine& m) { m.interfaces[1].gbps = {}; }},
      {"T11", Level::kWarn, "docker0",
       [](Machine& m) {
         m.interfaces = {{.name = "docker0",
                          .kind = NetInterface::Kind::kBridge,
                          .up = Is(true)}};
       }},
      {"T12", Level::kWarn, "off",
       [](Machine& m) { m.capabilities.gdr = Tri::kNo; }},
      {"T12", Level::kWarn, "not proven",
       [](Machine& m) { m.capabilities.gdr = Tri::kUnknown; }},
      {"T14", Level::kWarn, "1.13.1",
       [](Machine& m) {
         m.capabilities.gdr_peermem = Tri::kYes;
         m.capabilities.why["gdr_peermem"] = {
             {.source = "/sys/module/nvidia_peermem/version"}};
         m.capabilities.ucx_version = "1.13.1";
       }},
      {"T15", Level::kWarn, "ACS",
       [](Machine& m) { m.capabilities.acs_clear = Tri::kNo; }},
      {"T15", Level::kWarn, "root complex",
       [](Machine& m) {
         m.capabilities.acs_clear = Tri::kNo;
         m.capabilities.why["acs_clear"] = {
             {.source = "/sys/devices/pci0000:00/0000:00:01.0/config"},
             {.source = "/sys/devices/pci0000:80/0000:80:03.1/config"}};
       }},
      {"T15", Level::kUnknown, "ACS",
       [](Machine& m) { m.capabilities.acs_clear = Tri::kUnknown; }},
      {"T16", Level::kWarn, "IOMMU",
       [](Machine& m) { m.capabilities.iommu_passthrough = Tri::kNo; }},
      {"T17", Level::kWarn, "SYS",
       [](Machine& m) {
         m.gpus[0].position = {.host_bridge = "pci0000:80", .package = 1};
         FillPaths(m);
       }},
      {"T18", Level::kInfo, "200 Gb/s",
       [](Machine& m) {
         m.nics.pop_back();
         FillPaths(m);
       }},
      {"T21", Level::kWarn, "staged",
       [](Machine& m) { m.capabilities.ucx_cuda = Tri::kNo; }},
      {"T21", Level::kWarn, "no RDMA",
       [](Machine& m) { m.capabilities.ucx_rdma = Tri::kNo; }},
      {"T22", Level::kUnknown, "shows no environment",
       [](Machine& m) { m.capabilities.memlock_bytes = {}; }},
      {"T22", Level::kInfo, "UCX_TLS wins over",
       [](Machine& m) { m.environment["UCX_TLS"] = "tcp"; }},
      {"T23", Level::kWarn, "mlx5_0,",
       [](Machine& m) { m.environment["UCX_NET_DEVICES"] = "mlx5_0,eth0"; }},
      {"T24", Level::kWarn, "priority 3",
       [](Machine& m) { m.interfaces[1].ecn_rp[3] = false; }},
      {"T24", Level::kUnknown, "PFC",
       [](Machine& m) {
         for (NetInterface& net : m.interfaces) net.ecn_np = net.ecn_rp = {};
       }},
      {"T25", Level::kInfo, "eth4",
       [](Machine& m) {
         m.interfaces[0].kind = NetInterface::Kind::kBond;
         m.interfaces[0].lower = {"eth4", "eth5"};
       }},
      {"T26", Level::kWarn, "hides",
       [](Machine& m) {
         m.capabilities.in_vm = Tri::kYes;
         for (Gpu& gpu : m.gpus) gpu.position.switches.clear();
         for (Nic& nic : m.nics) nic.position.switches.clear();
       }},
      {"T26", Level::kUnknown, "hides them is unknown",
       [](Machine& m) {
         m.capabilities.in_vm = Tri::kUnknown;
         for (Gpu& gpu : m.gpus) gpu.position.switches.clear();
         for (Nic& nic : m.nics) nic.position.switches.clear();
       }},
      {"T27", Level::kInfo, "mlx5_1",
       [](Machine& m) {
         m.numa_nodes = 2;
         m.nics[1].position.numa_node = -1;
       }},
  };
  return cases;
}

// The same of what a container or a scheduler gives a process.
inline const std::vector<DoctorCase>& ContainerCases() {
  static const std::vector<DoctorCase> cases = {
      {"T11", Level::kWarn, "NCCL_SOCKET_IFNAME chooses docker0",
       [](Machine& m) {
         m.interfaces.push_back({.name = "docker0",
                                 .kind = NetInterface::Kind::kBridge,
                                 .up = Is(true)});
         m.environment["NCCL_SOCKET_IFNAME"] = "eth0,docker";
       }},
      {"T29", Level::kWarn, "/dev/shm has 16 MiB",
       [](Machine& m) { m.capabilities.shm_bytes = Is(uint64_t{1} << 24); }},
      {"T29", Level::kInfo, "/dev/shm has 64 MiB",
       [](Machine& m) { m.capabilities.shm_bytes = Is(uint64_t{1} << 26); }},
      {"T29", Level::kUnknown, "/dev/shm",
       [](Machine& m) { m.capabilities.shm_bytes = {}; }},
      {"T30", Level::kWarn, "2 processes of a job share 0.5 CPUs of 64",
       [](Machine& m) {
         m.cpus = 64;
         m.capabilities.cpu_limit = Is(0.5);
       }},
      {"T30", Level::kInfo, "a process may use 7.5 CPUs of 64",
       [](Machine& m) {
         m.cpus = 64;
         m.capabilities.cpu_limit = Is(7.5);
       }},
      {"T30", Level::kUnknown, "CPUs",
       [](Machine& m) { m.capabilities.cpu_limit = {}; }},
      {"T31", Level::kWarn, "gives 1024 MiB, 2 processes register 1024 MiB",
       [](Machine& m) {
         m.capabilities.memory_limit_bytes = Is(uint64_t{1} << 30);
       }},
      {"T31", Level::kOk, "gives 4096 MiB",
       [](Machine& m) {
         m.capabilities.memory_limit_bytes = Is(uint64_t{1} << 32);
       }},
      {"T31", Level::kUnknown, "memory",
       [](Machine& m) { m.capabilities.memory_limit_bytes = {}; }},
  };
  return cases;
}

// The same of one host of two: checks that compare.
inline const std::vector<DoctorCase>& CompareCases() {
  static const std::vector<DoctorCase> cases = {
      {"T07", Level::kInfo, "that is right",
       [](Machine& m) { m.nics[0].ports[0].chosen_gid = Is(1); }},
      {"T08", Level::kWarn, "1024",
       [](Machine& m) {
         for (Nic& nic : m.nics) nic.ports[0].active_mtu = Is(1024);
       }},
      {"T13", Level::kFail, "node1",
       [](Machine& m) { m.capabilities.gdr = Tri::kNo; }},
      {"T19", Level::kFail, "GPUs", [](Machine& m) { m.gpus.pop_back(); }},
      {"T19", Level::kFail, "RDMA ports",
       [](Machine& m) { m.nics[1].ports[0].gbps = Is(200.0); }},
      {"T20", Level::kWarn, "rail 1",
       [](Machine& m) { m.nics[1].ports[0].gids[1].raw[14] = 9; }},
  };
  return cases;
}

inline std::vector<Machine> TwoHosts() {
  std::vector<Machine> machines = {Healthy(), Healthy()};
  machines[1].host = "node1";
  return machines;
}

}  // namespace telegrad
