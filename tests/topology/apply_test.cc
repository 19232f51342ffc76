#include "topology/apply.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/topology/plan_machines.h"

namespace telegrad {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

// Two hosts of two RoCE cards each, without GPUs.
Plan PlanOf(const std::vector<Machine>& machines, const PlanRequest& request) {
  return MustPlan(machines, AssumedCalibration(), request);
}

TEST(Apply, GivesEachHostItsCardsAndRows) {
  std::vector<Machine> machines = {
      TestMachine("a", 0, 2, Fabric::kRoceV2, 100),
      TestMachine("b", 0, 1, Fabric::kRoceV2, 100)};
  machines[1].nics[0].ports[0].chosen_gid.value = 7;
  const Plan plan = PlanOf(machines, Request("vgg16"));
  EXPECT_EQ(plan.transport, "ucx");
  const HostSettings a = Apply(plan, "a");
  EXPECT_THAT(a.rdma_ports, ElementsAre("mlx5_0:1", "mlx5_1:1"));
  EXPECT_THAT(a.gid_rows,
              ElementsAre(Pair("mlx5_0:1", 3), Pair("mlx5_1:1", 3)));
  const HostSettings b = Apply(plan, "b");
  EXPECT_THAT(b.rdma_ports, ElementsAre("mlx5_0:1"));
  EXPECT_THAT(b.gid_rows, ElementsAre(Pair("mlx5_0:1", 7)));
  EXPECT_THAT(Apply(plan, "c").rdma_ports, IsEmpty());
}

TEST(Apply, PortsNearAGpuAreThoseOfTheNearestCards) {
  // Cards 0 and 2 share a switch with GPU 0, cards 1 and 3 with GPU 1.
  Machine machine = TestMachine("a", 2, 4, Fabric::kInfiniBand, 100);
  const std::vector<std::string> all = {"mlx5_0:1", "mlx5_1:1", "mlx5_2:1"};
  EXPECT_THAT(PortsNear(machine, "0000:10:00.0", all),
              ElementsAre("mlx5_0:1", "mlx5_2:1"));
  EXPECT_THAT(PortsNear(machine, "0000:11:00.0", all), ElementsAre("mlx5_1:1"));
  // Its own are not among them: of the others the nearest.
  EXPECT_THAT(PortsNear(machine, "11:00.0", {"mlx5_0:1", "other:1"}),
              ElementsAre("mlx5_0:1"));
  for (const char* unknown : {"", "0000:77:00.0", "GPU 1"}) {
    EXPECT_EQ(PortsNear(machine, unknown, all), all) << unknown;
  }
  EXPECT_THAT(PortsNear(machine, "0000:10:00.0", {}), IsEmpty());
  machine.gpu_nic.clear();
  EXPECT_EQ(PortsNear(machine, "0000:10:00.0", all), all);
}

TEST(Apply, OneFactChangesWhatARunDoes) {
  std::vector<Machine> machines = Cluster(2, Fabric::kEfa, 100);
  PlanRequest request = Request("vgg16");
  const auto planned = [&] { return PlanOf(machines, request); };
  const auto settings = [&] { return Apply(planned(), "node0"); };
  EXPECT_EQ(planned().transport, "ofi");
  EXPECT_EQ(planned().tls, "efa");
  EXPECT_THAT(settings().gid_rows, IsEmpty());
  machines[1] = TestMachine("node1", 0, 1, Fabric::kEthernet, 100);
  EXPECT_EQ(planned().transport, "tcp");  // for both
  EXPECT_THAT(settings().rdma_ports, IsEmpty());
  EXPECT_EQ(planned().connections, 4);
  request.connections = {9, "--connections 9"};
  EXPECT_EQ(planned().connections, 9);
  machines = Cluster(2, Fabric::kInfiniBand, 100, 1);
  EXPECT_EQ(settings().memory, MemoryPath::kStaging);
  for (Machine& each : machines) each.capabilities.gdr = Tri::kYes;
  EXPECT_EQ(settings().memory, MemoryPath::kGdr);
  request.host_memory = {true, "tensors are in host memory"};
  EXPECT_EQ(settings().memory, MemoryPath::kHost);
  request.host_memory = {};
  // What all GPUs of a machine can.
  Plan plan = planned();
  plan.machines[0].gpus.push_back({.memory = MemoryPath::kGdrReceive});
  EXPECT_EQ(Apply(plan, "node0").memory, MemoryPath::kGdrReceive);
}

}  // namespace
}  // namespace telegrad
