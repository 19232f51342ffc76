#include "topology/machine_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "topology/path.h"

namespace telegrad {
namespace {

using nlohmann::json;

Bdf ReadBdf(const char* text) {
  Bdf bdf;
  EXPECT_TRUE(ParseBdf(text, &bdf)) << text;
  return bdf;
}

Evidence Why(const char* what) {
  return {.what = what,
          .source = "/sys/x",
          .raw = "y\n",
          .error = 22,
          .confidence = Confidence::kInferred};
}

// Every member set to something else than its default.
Nic FullNic() {
  const Gid gid = {.index = 3,
                   .raw = {0xfe, 0x80, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11},
                   .type = GidType::kRoceV2,
                   .scope = GidScope::kIpv4,
                   .net_interface = "eth2"};
  const Port port = {.number = 2,
                     .link_layer = LinkLayer::kEthernet,
                     .fabric = Fabric::kRoceV2,
                     .state = {.value = 4, .why = {Why("state")}},
                     .physical_state = {.value = 5},
                     .gbps = {.value = 0.1, .why = {Why("a"), Why("b")}},
                     .lanes = {.value = 4},
                     .active_mtu = {.value = 4096},
                     .lid = {.value = 0xffffffff},
                     .gids = {gid, gid},
                     .gid_rows = {.value = 4, .why = {Why("rows")}},
                     .chosen_gid = {.value = 3},
                     .net_interface = "eth2"};
  return {.name = "mlx5_0",
          .bdf = {.value = ReadBdf("10000:81:00.1"), .why = {Why("bdf")}},
          .card = "10000:81:00",
          .driver = "mlx5_core",
          .board = "MT4129",
          .pci_class = {.value = 0x020700, .why = {Why("class")}},
          .vendor = {.value = 0x15b3},
          .device = {.value = 0x1021},
          .node_type = {.value = 1},
          .pcie_gbps = {.value = 504.1},
          .pcie_now_gbps = {.value = 31.5},
          .has_device_node = Tri::kNo,
          .is_rdma = true,
          .net_interfaces = {"eth2", "eth3"},
          .position = {.switches = {"s1", "s0"},
                       .host_bridge = "pci0000:80",
                       .package = 1,
                       .numa_node = 3},
          .ports = {{}, port}};
}

Capabilities FullCapabilities() {
  Capabilities all;
  int i = 0;
  for (Tri* each :
       {&all.gdr, &all.gdr_peermem, &all.gdr_dmabuf_nic, &all.gdr_dmabuf_gpu,
        &all.gdr_probe, &all.gdrcopy, &all.ucx_cuda, &all.ucx_rdma,
        &all.ofi_efa, &all.ofi_hmem, &all.rdma_device_nodes, &all.acs_clear,
        &all.iommu_passthrough, &all.in_vm, &all.in_container}) {
    *each = i++ % 2 == 0 ? Tri::kYes : Tri::kNo;
  }
  all.memlock_bytes = {.value = UINT64_MAX, .why = {Why("limit")}};
  all.cpu_limit = {.value = 1.5, .why = {Why("cpu.max")}};
  all.memory_limit_bytes = {.value = 5, .why = {Why("memory.max")}};
  all.shm_bytes = {.value = 6, .why = {Why("size")}};
  all.ucx_version = "1.13.1";
  all.ofi_version = "1.17.0";
  all.why = {{"gdr", {Why("gdr")}}, {"memlock_bytes", {}}};
  return all;
}

Machine FullMachine() {
  Machine machine;
  machine.source = "live";
  machine.host = "node \"7\" \xc3\xa9";
  machine.arch = "x86_64";
  machine.numa_nodes = 4;
  machine.cpus = 96;
  machine.gpus = {{.name = "cuda0",
                   .bdf = ReadBdf("0000:0f:00.0"),
                   .model = "H100",
                   .uuid = "GPU-1",
                   .compute_capability = {.value = 90, .why = {Why("sm")}},
                   .dmabuf = {.value = false},
                   .position = {.host_bridge = "pci0000:80", .package = 1}},
                  {.name = "cuda1", .bdf = ReadBdf("0000:1f:00.0")}};
  machine.nics = {FullNic(), {.name = "eth0"}};
  machine.interfaces = {{.name = "bond0",
                         .kind = NetInterface::Kind::kBond,
                         .up = {.value = false, .why = {Why("flags")}},
                         .mtu = {.value = 9000},
                         .gbps = {.value = 25},
                         .numa_node = {.value = 0},
                         .lower = {"eth0", "eth1"},
                         .addresses = {"192.0.2.1", "fd00::1"},
                         .ecn_np = {{0, true}, {5, false}},
                         .ecn_rp = {{7, false}}}};
  machine.links = {{.a = 0, .b = 1, .lanes = 4, .gbytes_per_s = {.value = 100}},
                   {.a = 1, .b_name = "nvswitch0", .lanes = 18},
                   {.a = 1, .b = GpuLink::kToCpu}};
  machine.capabilities = FullCapabilities();
  machine.environment = {{"NCCL_IB_HCA", "^mlx5_1"}, {"UCX_TLS", ""}};
  machine.notes = {Why("skipped")};
  FillPaths(machine);
  return machine;
}

TEST(MachineJson, ReadsBackWhatItWrote) {
  for (const Machine& machine : {FullMachine(), Machine()}) {
    for (int indent : {-1, 2}) {
      const auto again = MachineFromJson(ToJson(machine, indent));
      ASSERT_TRUE(again.ok()) << again.status();
      EXPECT_TRUE(*again == machine);
    }
  }
}

TEST(MachineJson, KeepsPathsThatNoRuleGives) {
  Machine machine = FullMachine();
  machine.gpu_nic[1][0] = {PathClass::kC2c, PathClass::kPxb, "measured"};
  const auto again = MachineFromJson(ToJson(machine));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(*again == machine);
  machine.gpu_nic.clear();
  machine.gpu_gpu.clear();
  EXPECT_TRUE(*MachineFromJson(ToJson(machine)) == FullMachine());
}

TEST(MachineJson, ComputesPathsThatAreNotThere) {
  const Machine machine = FullMachine();
  json dump = json::parse(ToJson(machine));
  dump.erase("paths");
  const auto again = MachineFromJson(dump.dump());
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(*again == machine);
  dump["paths"] = json::object();
  const auto empty = MachineFromJson(dump.dump());
  ASSERT_TRUE(empty.ok()) << empty.status();
  EXPECT_TRUE(*empty == machine);
}

TEST(MachineJson, ShowsWhatPeopleAskFor) {
  const json view = json::parse(ToJson(FullMachine()));
  EXPECT_EQ(view["schema"], "1");
  EXPECT_EQ(view["gdr"], "yes");
  EXPECT_EQ(view["gpu_nic"]["0000:0f:00.0"]["10000:81:00.1"], "PHB");
  EXPECT_EQ(view["gpu_nic"]["0000:0f:00.0"]["eth0"], "unknown");
  EXPECT_EQ(view["gpu_gpu"]["0000:0f:00.0"]["0000:1f:00.0"], "NVL");
  EXPECT_EQ(view["nics"][0]["transport"], "RoCEv2");
  EXPECT_EQ(view["nics"][0]["state"], "ACTIVE");
  EXPECT_EQ(view["nics"][0]["gbps"], 0.1);
  EXPECT_EQ(view["nics"][0]["gid_index"], 3);
  EXPECT_EQ(view["nics"][1]["bus_id"], nullptr);
  EXPECT_EQ(view["nics"][1]["transport"], "unknown");
  EXPECT_EQ(view["nics"][1]["gid_index"], nullptr);
}

TEST(MachineJson, NamesWhatIsWrong) {
  const json good = json::parse(ToJson(FullMachine()));
  const std::pair<const char*, json> changes[] = {
      {"/host", 7},
      {"/numa_nodes", "four"},
      {"/numa_nodes", 4000000000},
      {"/numa_nodes", 1.5},
      {"/gpus", json::object()},
      {"/gpus/1/bus_id", "0000:01:00.0"},  // below its predecessor
      {"/gpus/0/bus_id", "here"},
      {"/gpus/0/position/switches/0", nullptr},
      {"/nics/0/vendor", "15b3"},
      {"/nics/0/vendor", "0x123456789"},
      {"/nics/0/ports/1/gbps", -1},
      {"/nics/0/ports/1/transport", "Infiniband"},
      {"/nics/0/ports/1/gids/0/gid", "fe80::1"},
      {"/nics/0/ports/1/lid", -1},
      {"/nics/0/why/no_such", json::array()},
      {"/interfaces/0/ecn_np/first", true},
      {"/links/0/a", 2},
      {"/links/0/b", -3},
      {"/paths/gpu_nic/0", json::array()},
      {"/capabilities/gdr", true},
      {"/capabilities/evidence/gdr/0/errno", "EINVAL"},
      {"/new_member", 1},
      {"/schema", "2"},
      {"/schema", 1},
  };
  for (const auto& [pointer, value] : changes) {
    json bad = good;
    bad[json::json_pointer(pointer)] = value;
    const auto machine = MachineFromJson(bad.dump());
    ASSERT_FALSE(machine.ok()) << pointer << " " << value;
    EXPECT_EQ(machine.status().code(), absl::StatusCode::kInvalidArgument);
  }
  json bad = good;
  bad["nics"][0]["ports"][1]["lanes"] = "4X";
  EXPECT_THAT(MachineFromJson(bad.dump()).status().message(),
              ::testing::HasSubstr("nics[0].ports[1].lanes: expected a whole"));
}

TEST(MachineJson, SurvivesHostileTexts) {
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("[]"), std::string("null"),
        std::string("{\"schema\":\"1\",\"x\":1e999}"),
        std::string(5000000, '['), std::string(size_t{9} << 20, ' '),
        std::string("{\"schema\":\"1\",\"host\":\"\xff\"}"),
        "{\"schema\":\"1\",\"notes\":[" + std::string(20000, '0') + "]}"}) {
    EXPECT_FALSE(MachineFromJson(text).ok()) << text.substr(0, 40);
  }
  json many = json::parse(ToJson(Machine()));
  many["nics"] = json::array();
  for (int i = 0; i < 5000; ++i) many["nics"].push_back(json::object());
  EXPECT_FALSE(MachineFromJson(many.dump()).ok());
  Machine bytes;
  bytes.host = "\xff\xfe";  // a name that is not UTF-8 must not stop a dump
  EXPECT_TRUE(MachineFromJson(ToJson(bytes)).ok());
}

TEST(TopologyDigest, IsBlindToNamesAndOrder) {
  const Machine one = FullMachine();
  Machine other = one;
  other.host = "node8";
  other.gpus[0].uuid = "GPU-2";
  other.nics[0].name = "mlx5_9";
  other.nics[0].ports[1].gids.clear();
  other.interfaces.clear();
  std::swap(other.nics[0], other.nics[1]);
  for (auto& row : other.gpu_nic) std::swap(row[0], row[1]);
  EXPECT_EQ(TopologyDigest(other), TopologyDigest(one));
  EXPECT_EQ(TopologyDigest(one).size(), 32u);
}

TEST(TopologyDigest, SeesRatesClassesAndCounts) {
  const Machine one = FullMachine();
  Machine slower = one;
  slower.nics[0].ports[1].gbps.value = 200;
  Machine nearer = one;
  nearer.gpu_nic[0][0].path = PathClass::kPix;
  Machine fewer = one;
  fewer.nics.pop_back();
  FillPaths(fewer);
  Machine model = one;
  model.gpus[0].model = "A100";
  for (const Machine& each : {slower, nearer, fewer, model}) {
    EXPECT_NE(TopologyDigest(each), TopologyDigest(one));
  }
}

}  // namespace
}  // namespace telegrad
