#include "topology/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/random.h"
#include "tests/topology/plan_machines.h"

namespace telegrad {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Plan, TakesTheBestNetworkOfAllMachines) {
  const PlanRequest request = Request("resnet50");
  const Calibration calibration = AssumedCalibration();
  const auto network = [&](Fabric fabric) {
    return MustPlan(Cluster(2, fabric, 100), calibration, request).network;
  };
  EXPECT_EQ(network(Fabric::kInfiniBand), NetworkKind::kInfiniBand);
  EXPECT_EQ(network(Fabric::kRoceV2), NetworkKind::kRoceV2);
  EXPECT_EQ(network(Fabric::kEfa), NetworkKind::kEfa);
  EXPECT_EQ(network(Fabric::kEthernet), NetworkKind::kTcp);
  EXPECT_EQ(network(Fabric::kRoceV1), NetworkKind::kTcp);
  EXPECT_EQ(network(Fabric::kIwarp), NetworkKind::kTcp);
  EXPECT_EQ(
      MustPlan(Cluster(1, Fabric::kEfa, 100), calibration, request).network,
      NetworkKind::kLocal);
}

TEST(Plan, NeverMixesNetworks) {
  std::vector<Machine> machines = Cluster(3, Fabric::kInfiniBand, 200);
  machines[1] = TestMachine("odd", 0, 1, Fabric::kEthernet, 100);
  Plan plan = MustPlan(machines, AssumedCalibration(), Request("resnet50"));
  EXPECT_EQ(plan.network, NetworkKind::kTcp);
  EXPECT_THAT(plan.warnings,
              Contains(AllOf(HasSubstr("IB is on 2 of 3"), HasSubstr("odd"))));
  // An InfiniBand card carries no TCP here; a RoCE one does.
  EXPECT_THAT(plan.warnings, Contains(HasSubstr("TCP on node0")));
}

TEST(Plan, RefusesAnOverrideThatOneMachineCannotFollow) {
  std::vector<Machine> machines = Cluster(3, Fabric::kRoceV2, 100);
  PlanRequest request = Request("resnet50");
  request.network = {"rocev2", "--transport rocev2"};
  EXPECT_EQ(MustPlan(machines, AssumedCalibration(), request).network,
            NetworkKind::kRoceV2);
  machines[2].capabilities.memlock_bytes.value = 64 << 10;
  const auto locked = MakePlan(machines, AssumedCalibration(), request);
  EXPECT_EQ(locked.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(locked.status().message(),
              AllOf(HasSubstr("node2"), HasSubstr("64 KiB")));
  request.network = {"IB", "--transport IB"};
  EXPECT_THAT(
      MakePlan(machines, AssumedCalibration(), request).status().message(),
      HasSubstr("node0 cannot use it: it has no IB port"));
  request.network = {"carrier pigeon", "--transport"};
  EXPECT_EQ(MakePlan(machines, AssumedCalibration(), request).status().code(),
            absl::StatusCode::kInvalidArgument);
  machines.resize(1);  // no network is needed, and the name is still wrong
  EXPECT_EQ(MakePlan(machines, AssumedCalibration(), request).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(Plan, RoceNeedsARoutableGid) {
  std::vector<Machine> machines = Cluster(2, Fabric::kRoceV2, 100);
  machines[0].nics[0].ports[0].chosen_gid = {};
  machines[0].nics[0].ports[0].gids = {{.index = 0}};
  const Plan plan =
      MustPlan(machines, AssumedCalibration(), Request("resnet50"));
  EXPECT_EQ(plan.network, NetworkKind::kTcp);
  EXPECT_THAT(plan.warnings, Contains(HasSubstr("no active port has a rout")));
  // Rows that are all empty are no row; a table that was not seen may have one.
  machines[0].nics[0].ports[0].gids.clear();
  machines[0].nics[0].ports[0].gid_rows.value = 4;
  EXPECT_EQ(
      MustPlan(machines, AssumedCalibration(), Request("resnet50")).network,
      NetworkKind::kTcp);
  machines[0].nics[0].ports[0].gid_rows = {};
  EXPECT_EQ(
      MustPlan(machines, AssumedCalibration(), Request("resnet50")).network,
      NetworkKind::kRoceV2);
}

std::vector<std::string> NicsOf(const GpuPlan& gpu) {
  std::vector<std::string> names;
  for (const Rail& rail : gpu.rails) names.push_back(rail.nic);
  return names;
}

TEST(Plan, GivesEachGpuTheNearestCards) {
  const auto rails = [](int gpus, int nics) {
    const std::vector<Machine> machines = {
        TestMachine("a", gpus, nics, Fabric::kInfiniBand, 200)};
    return MustPlan(machines, AssumedCalibration(), Request("resnet50", 2))
        .machines[0];
  };
  const MachinePlan own = rails(8, 8);
  for (size_t g = 0; g < 8; ++g) {
    EXPECT_THAT(NicsOf(own.gpus[g]), ElementsAre(absl::StrCat("mlx5_", g)));
    EXPECT_EQ(own.gpus[g].rails[0].path, PathClass::kPix);
  }
  EXPECT_EQ(own.gbps, 1600);
  const MachinePlan shared = rails(4, 2);
  EXPECT_THAT(NicsOf(shared.gpus[3]), ElementsAre("mlx5_1"));
  EXPECT_EQ(shared.gpus[3].rails[0].users, 2);
  EXPECT_EQ(shared.gbps, 400);
  const MachinePlan twin = rails(2, 4);
  EXPECT_THAT(NicsOf(twin.gpus[1]), ElementsAre("mlx5_1", "mlx5_3"));
  EXPECT_EQ(twin.gpus[1].rails[0].gpu_share, 0.5);
}

TEST(Plan, ACardAtTheGpusSwitchIsNearerThanOneChipToChip) {
  Machine machine = TestMachine("a", 2, 2, Fabric::kInfiniBand, 200);
  for (int g = 0; g < 2; ++g) {
    machine.links.push_back({.a = g, .b = GpuLink::kToCpu});
  }
  FillPaths(machine);
  EXPECT_EQ(machine.gpu_nic[1][0].path, PathClass::kC2c);
  const Plan plan =
      MustPlan({machine}, AssumedCalibration(), Request("resnet50", 2));
  EXPECT_THAT(NicsOf(plan.machines[0].gpus[1]), ElementsAre("mlx5_1"));
}

TEST(Plan, LeavesOutSlowDownAndForeignCards) {
  Machine machine = TestMachine("a", 1, 4, Fabric::kInfiniBand, 400);
  machine.nics[0].ports[0].gbps.value = 100;           // too slow
  machine.nics[1].ports[0].state.value = 1;            // down
  machine.nics[2] = TestNic(2, Fabric::kRoceV2, 400);  // foreign
  machine.nics[2].position.switches = {"sw0"};
  FillPaths(machine);
  const Plan plan =
      MustPlan({machine}, AssumedCalibration(), Request("resnet50", 2));
  EXPECT_THAT(NicsOf(plan.machines[0].gpus[0]), ElementsAre("mlx5_3"));
}

TEST(Plan, MemoryGoesByGpuDirectOnlyWhereItIsKnownToWork) {
  Machine machine = TestMachine("a", 1, 1, Fabric::kInfiniBand, 200);
  PlanRequest request = Request("resnet50", 2);
  const auto memory = [&] {
    return MustPlan({machine}, AssumedCalibration(), request)
        .machines[0]
        .gpus[0]
        .memory;
  };
  EXPECT_EQ(memory(), MemoryPath::kStaging);  // not known
  request.gdr = GdrWish::kOn;
  EXPECT_THAT(
      MakePlan({{machine}}, AssumedCalibration(), request).status().message(),
      HasSubstr("a cuda0 cannot use it: GPUDirect RDMA: unknown"));
  request.gdr = GdrWish::kAuto;
  machine.capabilities.gdr = Tri::kYes;
  EXPECT_EQ(memory(), MemoryPath::kGdr);
  machine.gpus[0].compute_capability.value = 70;
  EXPECT_EQ(memory(), MemoryPath::kGdrReceive);
  machine.links.push_back({.a = 0, .b = GpuLink::kToSwitch});
  EXPECT_EQ(memory(), MemoryPath::kGdr);
  machine.gpu_nic[0][0].path = PathClass::kC2c;
  EXPECT_EQ(memory(), MemoryPath::kGdr);
  machine.gpu_nic[0][0].path = PathClass::kPhb;
  EXPECT_EQ(memory(), MemoryPath::kStaging);
  request.gdr = GdrWish::kOn;
  EXPECT_EQ(memory(), MemoryPath::kGdr);
  request.gdr = GdrWish::kOff;
  EXPECT_EQ(memory(), MemoryPath::kStaging);
}

TEST(Plan, MemoryIsStagedWhereBindLeavesNoCard) {
  Machine machine = TestMachine("a", 1, 1, Fabric::kRoceV2, 200);
  machine.capabilities.gdr = Tri::kYes;
  PlanRequest request = Request("resnet50", 2);
  request.bound = {{"a", "eth0"}};
  const Plan plan = MustPlan({machine}, AssumedCalibration(), request);
  ASSERT_EQ(plan.network, NetworkKind::kRoceV2);
  const GpuPlan& gpu = plan.machines[0].gpus[0];
  EXPECT_THAT(gpu.rails, IsEmpty());
  EXPECT_EQ(gpu.memory, MemoryPath::kStaging);
  EXPECT_EQ(gpu.why, "no RoCEv2 card is left for it");
}

TEST(Plan, AggregationFollowsTheTable) {
  const Calibration calibration = AssumedCalibration();
  EXPECT_EQ(MustPlan({}, calibration, Request("vgg16", 1)).aggregation,
            Aggregation::kLocal);
  EXPECT_EQ(MustPlan({}, calibration, Request("vgg16", 8)).aggregation,
            Aggregation::kRing);
  EXPECT_EQ(MustPlan({}, calibration, Request("vgg16", 64)).aggregation,
            Aggregation::kColocatedServers);
  PlanRequest request = Request("vgg16", 64);
  request.profile.tensors.resize(2);
  EXPECT_EQ(MustPlan({}, calibration, request).aggregation,
            Aggregation::kRecursiveDoubling);
  request.servers = 64;
  EXPECT_EQ(MustPlan({}, calibration, request).aggregation,
            Aggregation::kDedicatedServers);
  std::vector<Machine> machines = Cluster(4, Fabric::kEthernet, 100);
  machines[1].nics[0].ports[0].gbps.value = 40;
  EXPECT_EQ(MustPlan(machines, calibration, Request("vgg16")).aggregation,
            Aggregation::kColocatedServers);
}

TEST(Plan, SmallNumbers) {
  std::vector<Machine> machines = Cluster(2, Fabric::kRoceV2, 100);
  machines[1].nics[0].ports[0].active_mtu.value = 1024;
  const Plan plan = MustPlan(machines, AssumedCalibration(), Request("vgg16"));
  EXPECT_EQ(plan.mtu, 1024);
  EXPECT_THAT(plan.warnings, Contains(HasSubstr("MTUs differ, 1024 to 4096")));
  EXPECT_EQ(plan.link_bytes_per_s, 100e9 / 8);
  EXPECT_EQ(
      MustPlan({}, AssumedCalibration(), Request("vgg16", 2, 100)).connections,
      4);
  EXPECT_EQ(
      MustPlan({}, AssumedCalibration(), Request("vgg16", 2, 10)).connections,
      1);
}

// A random machine of up to 8 GPUs and cards of several fabrics and states.
Machine RandomMachine(Random& random, int number) {
  constexpr Fabric kFabrics[] = {Fabric::kInfiniBand, Fabric::kRoceV2,
                                 Fabric::kEfa, Fabric::kEthernet};
  Machine machine = TestMachine(absl::StrCat("m", number),
                                static_cast<int>(random.NextBelow(9)),
                                static_cast<int>(random.NextBelow(9)),
                                kFabrics[random.NextBelow(4)], 100);
  for (size_t i = 0; i < machine.nics.size(); ++i) {
    Nic& nic = machine.nics[i];
    if (random.NextBelow(3) == 0) {
      nic = TestNic(static_cast<int>(i), kFabrics[random.NextBelow(4)], 200);
    }
    if (random.NextBelow(4) == 0) nic.ports[0].state.value = 1;
    if (random.NextBelow(4) == 0) nic.ports[0].gbps = {};
  }
  FillPaths(machine);
  machine.capabilities.gdr = static_cast<Tri>(random.NextBelow(3));
  return machine;
}

TEST(PlanProperty, EachGpuIsServedOnceByTheOneNetworkInAnyOrder) {
  Random random(7);
  for (int i = 0; i < 200; ++i) {
    std::vector<Machine> machines;
    const auto count = static_cast<int>(1 + random.NextBelow(5));
    for (int m = 0; m < count; ++m) {
      machines.push_back(RandomMachine(random, m));
    }
    const PlanRequest request = Request("alexnet");
    const Plan plan = MustPlan(machines, AssumedCalibration(), request);
    ASSERT_EQ(plan.machines.size(), machines.size());
    for (size_t m = 0; m < machines.size(); ++m) {
      const MachinePlan& planned = plan.machines[m];
      ASSERT_EQ(planned.gpus.size(),
                std::max<size_t>(1, machines[m].gpus.size()));
      for (const GpuPlan& gpu : planned.gpus) {
        for (const Rail& rail : gpu.rails) {
          const auto nic = std::find_if(
              machines[m].nics.begin(), machines[m].nics.end(),
              [&](const Nic& each) { return each.name == rail.nic; });
          ASSERT_NE(nic, machines[m].nics.end());
          const Fabric fabric = nic->ports[0].fabric;
          if (plan.network == NetworkKind::kInfiniBand) {
            EXPECT_EQ(fabric, Fabric::kInfiniBand);
          } else {
            EXPECT_NE(fabric, Fabric::kInfiniBand);
          }
          EXPECT_NE(nic->ports[0].state.value, 1);
        }
      }
    }
    std::reverse(machines.begin(), machines.end());
    const Plan again = MustPlan(machines, AssumedCalibration(), request);
    EXPECT_EQ(again.digest, plan.digest);
    EXPECT_EQ(PlanToJson(again), PlanToJson(plan));
  }
}

TEST(Plan, RefusesBadRequests) {
  const Calibration calibration = AssumedCalibration();
  PlanRequest request = Request("vgg16", -1);
  EXPECT_THAT(MakePlan({}, calibration, request).status().message(),
              HasSubstr("-1 workers"));
  request = Request("vgg16", 2, -3);
  EXPECT_THAT(MakePlan({}, calibration, request).status().message(),
              HasSubstr("-3 Gb/s"));
  EXPECT_THAT(MakePlan({}, calibration, {}).status().message(),
              HasSubstr("profile"));
}

TEST(Plan, JsonHoldsAllOfIt) {
  const Plan plan = MustPlan(Cluster(2, Fabric::kRoceV2, 100, 2), Measured(),
                             Request("alexnet"));
  const auto json = nlohmann::json::parse(PlanToJson(plan));
  EXPECT_EQ(json["digest"], plan.digest);
  EXPECT_EQ(json["network"], "RoCEv2");
  EXPECT_EQ(json["tensors"].size(), 16u);
  EXPECT_EQ(json["machines"][1]["gpus"][1]["rails"][0]["gid"], 3);
  EXPECT_EQ(plan.digest.size(), 64u);
  EXPECT_THAT(PlanToText(plan), HasSubstr("machine node1"));
}

TEST(Plan, TextAndJsonHaveEachDecisionOnceInOrder) {
  PlanRequest request = Request("alexnet");
  const auto lines = [&] {
    const Plan plan = MustPlan(Cluster(2, Fabric::kEthernet, 100),
                               AssumedCalibration(), request);
    const auto json = nlohmann::json::parse(PlanToJson(plan));
    EXPECT_EQ(json["decisions"].size(), plan.decisions.size());
    EXPECT_EQ(json["decisions"][0]["what"], "network");
    EXPECT_EQ(json["decisions"][0]["choice"], "TCP");
    for (const std::string& each : Lines(plan)) {
      EXPECT_THAT(PlanToText(plan), HasSubstr("\n  " + each + "\n"));
    }
    return Lines(plan);
  };
  EXPECT_THAT(
      lines(),
      ElementsAre(
          HasSubstr("network TCP: no RDMA network is usable"),
          HasSubstr("cards node0 "),
          HasSubstr("memory host for machines (2): "),
          HasSubstr("aggregation ring: 2"), HasSubstr("link 100 Gb/s"),
          HasSubstr("sums recursive_doubling to "),
          HasSubstr("compression off: "),
          HasSubstr("connections 4: one TCP stream"),
          AllOf(HasSubstr("chunk "), HasSubstr("the shortest prediction")),
          HasSubstr("priority first layers first")));
  request.chunk_bytes = {1 << 20, "--chunk-elems 262144"};
  EXPECT_THAT(lines(), Contains("chunk 1.05 MB for 16 tensors: --chunk-elems "
                                "262144"));
}

TEST(PlanDecisions, NameCardsAndMemory) {
  const std::vector<Machine> machines = {
      TestMachine("a", 2, 2, Fabric::kInfiniBand, 200)};
  PlanRequest request = Request("resnet50");
  request.workers = 2;
  const Plan plan = MustPlan(machines, AssumedCalibration(), request);
  EXPECT_THAT(Lines(plan), Contains("cards a cuda0 mlx5_0/1 200 Gb/s, cuda1 "
                                    "mlx5_1/1 200 Gb/s"));
  EXPECT_THAT(Lines(plan), Contains("memory staging for GPUs (2): GPUDirect "
                                    "RDMA: unknown"));
  request.workers = 1;
  EXPECT_THAT(Lines(MustPlan(machines, AssumedCalibration(), request)),
              Contains("cards none: nothing leaves the machine"));
  const Plan tcp = MustPlan(Cluster(4, Fabric::kEthernet, 100),
                            AssumedCalibration(), Request("resnet50"));
  EXPECT_THAT(Lines(tcp), Contains(HasSubstr("; and 2 machines more")));
  const Plan unknown =
      MustPlan({}, AssumedCalibration(), Request("resnet50", 3));
  EXPECT_THAT(Lines(unknown), Contains("cards not known"));
  EXPECT_THAT(Lines(unknown), Contains("memory not known"));
}

// The facts of detection that decided.
TEST(PlanDecisions, CarryTheirEvidence) {
  std::vector<Machine> machines = Cluster(2, Fabric::kInfiniBand, 100);
  const Evidence limit = {
      .what = "RLIMIT_MEMLOCK", .source = "getrlimit", .raw = "65536"};
  machines[1].capabilities.memlock_bytes = {.value = 65536, .why = {limit}};
  const Plan plan =
      MustPlan(machines, AssumedCalibration(), Request("resnet50"));
  EXPECT_EQ(plan.network, NetworkKind::kTcp);
  const Decision* network = FindDecision(plan, Decision::Kind::kNetwork);
  ASSERT_NE(network, nullptr);
  EXPECT_THAT(network->evidence, Contains(limit));
  EXPECT_EQ(FindDecision(plan, Decision::Kind::kAdvice), nullptr);
}

TEST(PlanFacts, DecideTheDigest) {
  const Plan one = MustPlan(Cluster(2, Fabric::kEthernet, 10),
                            AssumedCalibration(), Request("resnet50"));
  Plan other = MustPlan(Cluster(2, Fabric::kEthernet, 10), AssumedCalibration(),
                        Request("resnet50"));
  EXPECT_EQ(PlanFacts(one), PlanFacts(other));
  other.tensors[3].chunk_bytes *= 2;
  EXPECT_NE(PlanFacts(one), PlanFacts(other));
}

}  // namespace
}  // namespace telegrad
