#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "topology/hwloc/fill.h"
#include "topology/machine.h"

namespace telegrad {
namespace {

Machine WithCard(const PciPosition& position) {
  Machine machine{.numa_nodes = 2, .cpus = 8};
  machine.nics = {{.name = "mlx5_0", .bdf = {.value = Bdf{.bus = 3}}}};
  machine.nics[0].position = position;
  return machine;
}

TEST(HwlocFill, TakesWhatIsOpenAndNotesIt) {
  const PciPosition seen = {.switches = {"sw"},
                            .host_bridge = "pci0000:00",
                            .package = 1,
                            .numa_node = 1};
  Machine machine = WithCard({});
  machine.cpus = 0;
  EXPECT_TRUE(hwloc::LeavesOpen(machine));
  hwloc::FillFrom(WithCard(seen), "hwloc 2.9.0", machine);
  EXPECT_EQ(machine.nics[0].position, seen);
  EXPECT_EQ(machine.cpus, 8);
  EXPECT_FALSE(hwloc::LeavesOpen(machine));
  ASSERT_EQ(machine.notes.size(), 4u);
  EXPECT_EQ(machine.notes[1].what, "mlx5_0 NUMA node");
  for (const Evidence& note : machine.notes) {
    EXPECT_EQ(note.source, "hwloc 2.9.0");
  }
}

TEST(HwlocFill, LeavesWhatIsKnownAndWhatIsAnother) {
  const PciPosition known = {
      .host_bridge = "pci0000:80", .package = 0, .numa_node = 0};
  Machine machine = WithCard(known);
  EXPECT_FALSE(hwloc::LeavesOpen(machine));
  const Machine before = machine;
  Machine one_node = WithCard({.host_bridge = "pci0000:80"});
  EXPECT_TRUE(hwloc::LeavesOpen(one_node));
  one_node.numa_nodes = 1;
  EXPECT_FALSE(hwloc::LeavesOpen(one_node));
  hwloc::FillFrom(WithCard({.host_bridge = "pci0000:00"}), "hwloc", machine);
  EXPECT_EQ(machine, before);
  Machine other = WithCard({.numa_node = 1});
  other.nics[0].bdf.value->bus = 4;
  Machine open = WithCard({});
  hwloc::FillFrom(other, "hwloc", open);
  EXPECT_EQ(open, WithCard({}));
}

}  // namespace
}  // namespace telegrad
