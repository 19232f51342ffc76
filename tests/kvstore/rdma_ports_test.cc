#include "kvstore/tuning/rdma_ports.h"

#include <gmock/gmock.h>

#include "tests/topology/plan_machines.h"

namespace telegrad {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

TransportOptions Steered(const Machine& machine, const char* interface) {
  TransportOptions options;
  options.name = "auto";
  options.gid_rows = {{"of a run before", 1}};
  TakeMachine(machine, interface, options);
  return options;
}

Machine RoceMachine() {
  Machine machine = TestMachine("a", 0, 2, Fabric::kRoceV2, 100);
  machine.nics[0].ports[0].net_interface = "eth2";
  machine.nics[1].ports[0].net_interface = "eth3";
  machine.nics[1].ports[0].chosen_gid.value = 5;
  return machine;
}

TEST(RdmaPorts, OfRoceAreThoseOfTheBindInterface) {
  const TransportOptions options = Steered(RoceMachine(), "eth3");
  EXPECT_THAT(*options.rdma_ports, ElementsAre("mlx5_1:1"));
  EXPECT_THAT(options.gid_rows, ElementsAre(Pair("mlx5_1:1", 5)));
  EXPECT_THAT(*Steered(RoceMachine(), "eth9").rdma_ports, IsEmpty());
}

TEST(RdmaPorts, AreTheUsersWhereTheySayWhich) {
  Machine machine = RoceMachine();
  machine.environment["TELEGRAD_NICS"] = "^mlx5_7";
  const TransportOptions options = Steered(machine, "eth9");
  EXPECT_THAT(*options.rdma_ports, ElementsAre("mlx5_0:1", "mlx5_1:1"));
  EXPECT_THAT(options.gid_rows,
              ElementsAre(Pair("mlx5_0:1", 3), Pair("mlx5_1:1", 5)));
  machine.environment["TELEGRAD_NICS"] = "";
  EXPECT_THAT(*Steered(machine, "eth9").rdma_ports, IsEmpty());
}

TEST(RdmaPorts, LeaveOutWhatCannotBeUsed) {
  const auto ports = [](auto change) {
    Machine machine = RoceMachine();
    change(machine.nics[0]);
    return *Steered(machine, "eth2").rdma_ports;
  };
  EXPECT_THAT(ports([](Nic&) {}), ElementsAre("mlx5_0:1"));
  EXPECT_THAT(ports([](Nic& nic) { nic.has_device_node = Tri::kNo; }),
              IsEmpty());
  EXPECT_THAT(ports([](Nic& nic) { nic.ports[0].state.value = 1; }), IsEmpty());
  EXPECT_THAT(ports([](Nic& nic) { nic.ports[0].chosen_gid = {}; }), IsEmpty());
  for (const Fabric other :
       {Fabric::kRoceV1, Fabric::kIwarp, Fabric::kOmniPath}) {
    EXPECT_THAT(ports([&](Nic& nic) { nic.ports[0].fabric = other; }),
                IsEmpty());
  }
}

TEST(RdmaPorts, OfInfiniBandNeedNoAddress) {
  Machine machine = TestMachine("a", 0, 3, Fabric::kInfiniBand, 400);
  machine.nics[2].ports[0].gbps.value = 100;
  const TransportOptions options = Steered(machine, "eth0");
  EXPECT_THAT(*options.rdma_ports, ElementsAre("mlx5_0:1", "mlx5_1:1"));
  EXPECT_THAT(options.gid_rows, IsEmpty());
  machine.nics[2].net_interfaces = {"ib2"};
  EXPECT_THAT(*Steered(machine, "ib2").rdma_ports, ElementsAre("mlx5_2:1"));
}

TEST(RdmaPorts, OfEfaAreTakenWhereThereAreNoOthers) {
  const Machine machine = TestMachine("a", 0, 1, Fabric::kEfa, 100);
  const auto ports = [&](const char* name, const char* tls) {
    TransportOptions options;
    options.name = name;
    options.tls = tls;
    TakeMachine(machine, "eth0", options);
    return *options.rdma_ports;
  };
  EXPECT_THAT(ports("auto", ""), ElementsAre("mlx5_0:1"));
  EXPECT_THAT(ports("EFA", ""), ElementsAre("mlx5_0:1"));
  EXPECT_THAT(ports("ucx", ""), IsEmpty());
  EXPECT_THAT(ports("auto", "shm"), IsEmpty());
}

TEST(RdmaPorts, OfACardWithTwoAreThoseOfTheInterface) {
  Machine machine = RoceMachine();
  Nic& nic = machine.nics[0];
  nic.ports.push_back(nic.ports[0]);
  nic.ports[1].number = 2;
  nic.ports[1].net_interface = "eth4";
  nic.net_interfaces = {"eth2", "eth4"};
  EXPECT_THAT(*Steered(machine, "eth4").rdma_ports, ElementsAre("mlx5_0:2"));
}

}  // namespace
}  // namespace telegrad
