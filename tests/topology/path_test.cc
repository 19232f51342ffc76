#include "topology/path.h"

#include <gtest/gtest.h>

namespace telegrad {
namespace {

Bdf ReadBdf(const char* text) {
  Bdf bdf;
  EXPECT_TRUE(ParseBdf(text, &bdf)) << text;
  return bdf;
}

TEST(Bdf, ReadsWithAndWithoutDomain) {
  EXPECT_EQ(ToString(ReadBdf("0000:81:00.0")), "0000:81:00.0");
  EXPECT_EQ(ToString(ReadBdf("81:1f.7")), "0000:81:1f.7");
  EXPECT_EQ(ToString(ReadBdf("10000:E1:00.0")), "10000:e1:00.0");
}

TEST(Distance, OrdersACpusOwnLinkBetweenSwitchesAndAHostBridge) {
  constexpr PathClass kNearestFirst[] = {
      PathClass::kLoc,  PathClass::kNvl, PathClass::kPix,
      PathClass::kPxb,  PathClass::kC2c, PathClass::kPhb,
      PathClass::kNode, PathClass::kSys, PathClass::kUnknown};
  for (size_t i = 1; i < std::size(kNearestFirst); ++i) {
    EXPECT_LT(Distance(kNearestFirst[i - 1]), Distance(kNearestFirst[i])) << i;
  }
}

TEST(Bdf, RefusesWhatIsNone) {
  Bdf bdf;
  for (const char* text : {"", "81", "81:00", "0000:81:00", "0000:81:20.0",
                           "0000:81:00.8", "0000:81:00.0 ", "0000:100:00.0",
                           "pci0000:00", "123456789:00:00.0", "100:00.0"}) {
    EXPECT_FALSE(ParseBdf(text, &bdf)) << text;
  }
}

PathClass Between(const PciPosition& a, const PciPosition& b) {
  const PathClass path = ClassifyPath(a, b).path;
  EXPECT_EQ(path, ClassifyPath(b, a).path) << "not symmetric";
  return path;
}

TEST(Path, IsTheNearestCommonPart) {
  const PciPosition gpu = {.switches = {"s1", "s0"},
                           .host_bridge = "pci0000:00",
                           .package = 0,
                           .numa_node = 0};
  PciPosition nic = gpu;
  EXPECT_EQ(Between(gpu, nic), PathClass::kPix);
  nic.switches = {"s2", "s0"};
  EXPECT_EQ(Between(gpu, nic), PathClass::kPxb);
  nic.switches = {"s3"};
  EXPECT_EQ(Between(gpu, nic), PathClass::kPhb);
  nic.switches.clear();
  EXPECT_EQ(Between(gpu, nic), PathClass::kPhb);
  nic.host_bridge = "pci0000:40";
  EXPECT_EQ(Between(gpu, nic), PathClass::kNode);
  nic.numa_node = 1;  // sub-NUMA clustering: one package
  EXPECT_EQ(Between(gpu, nic), PathClass::kNode);
  nic.package = 1;
  EXPECT_EQ(Between(gpu, nic), PathClass::kSys);
}

TEST(Path, IsUnknownWhereTheSourceIsSilent) {
  EXPECT_EQ(Between({}, {}), PathClass::kUnknown);
  EXPECT_EQ(Between({.numa_node = 0}, {}), PathClass::kUnknown);
  EXPECT_EQ(Between({.numa_node = 0}, {.numa_node = 0}), PathClass::kNode);
}

Machine TwoGpus() {
  Machine machine;
  for (const char* bus : {"0000:01:00.0", "0000:02:00.0"}) {
    machine.gpus.push_back(
        {.bdf = ReadBdf(bus), .position = {.host_bridge = bus, .package = 0}});
  }
  return machine;
}

TEST(Path, NvlinkOutranksPcieBetweenGpus) {
  Machine machine = TwoGpus();
  FillPaths(machine);
  EXPECT_EQ(machine.gpu_gpu[0][1].path, PathClass::kNode);
  machine.links = {{.a = 1, .b = 0, .lanes = 4}};
  FillPaths(machine);
  EXPECT_EQ(machine.gpu_gpu[0][1].path, PathClass::kNvl);
  EXPECT_EQ(machine.gpu_gpu[0][1].pcie, PathClass::kNode);
  EXPECT_EQ(machine.gpu_gpu[0][0].path, PathClass::kLoc);
}

TEST(Path, NvswitchesJoinGpus) {
  Machine machine = TwoGpus();
  machine.links = {{.a = 0, .b_name = "nvswitch0", .lanes = 2}};
  FillPaths(machine);
  EXPECT_EQ(machine.gpu_gpu[0][1].path, PathClass::kNode);
  machine.links.push_back({.a = 1, .b_name = "nvswitch1", .lanes = 2});
  FillPaths(machine);
  EXPECT_EQ(machine.gpu_gpu[0][1].path, PathClass::kNvl);
  EXPECT_NE(machine.gpu_gpu[0][1].why.find("assumed"), std::string::npos);
}

// A Grace CPU with two GPUs of its own, or a POWER9.
TEST(Path, AGpusOwnLinkToItsCpuIsChipToChip) {
  Machine machine = TwoGpus();
  machine.gpus[1].position.switches = {"s0"};
  for (const char* name : {"mlx5_0", "mlx5_1", "mlx5_2", "eth0"}) {
    machine.nics.push_back(
        {.name = name, .position = {.host_bridge = name, .package = 0}});
  }
  for (int i = 0; i < 3; ++i) {
    machine.nics[static_cast<size_t>(i)].bdf.value =
        Bdf{.bus = static_cast<uint8_t>(0x80 + i)};
  }
  machine.nics[1].position.switches = {"s0"};
  machine.nics[2].position.package = 1;
  machine.links = {{.a = 0, .b = GpuLink::kToCpu, .lanes = 10}};
  FillPaths(machine);
  EXPECT_EQ(machine.gpu_nic[0][0].path, PathClass::kC2c);
  EXPECT_EQ(machine.gpu_nic[0][0].pcie, PathClass::kNode);
  EXPECT_EQ(machine.gpu_nic[0][2].path, PathClass::kSys);
  EXPECT_EQ(machine.gpu_nic[0][3].path, PathClass::kNode);  // no PCI device
  EXPECT_EQ(machine.gpu_nic[1][0].path, PathClass::kNode);  // not linked
  EXPECT_EQ(machine.gpu_gpu[0][1].path, PathClass::kNode);
  machine.links.push_back({.a = 1, .b = GpuLink::kToCpu, .lanes = 10});
  FillPaths(machine);
  EXPECT_EQ(machine.gpu_nic[1][1].path, PathClass::kPix);
  EXPECT_EQ(machine.gpu_gpu[0][1].path, PathClass::kC2c);
  machine.links.push_back({.a = 0, .b = 1, .lanes = 4});
  FillPaths(machine);
  EXPECT_EQ(machine.gpu_gpu[0][1].path, PathClass::kNvl);
}

TEST(Path, FunctionsOfOneDeviceAreLocal) {
  Machine machine = TwoGpus();
  machine.nics.push_back({.name = "mlx5_0",
                          .bdf = {.value = ReadBdf("0000:01:00.1"), .why = {}},
                          .position = {.host_bridge = "x", .package = 0}});
  FillPaths(machine);
  EXPECT_EQ(machine.gpu_nic[0][0].path, PathClass::kLoc);
  EXPECT_EQ(machine.gpu_nic[1][0].path, PathClass::kNode);
}

}  // namespace
}  // namespace telegrad
