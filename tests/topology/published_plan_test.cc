// Plans for real machines, from the files that NCCL, hwloc and others publish.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tests/topology/fixtures.h"
#include "topology/import.h"
#include "topology/path.h"
#include "topology/plan.h"

namespace telegrad {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

Machine Load(const std::string& name) {
  const auto machine =
      MachineFromFile(testing::PublishedFixtures() + "/" + name);
  EXPECT_TRUE(machine.ok()) << machine.status();
  return machine.ok() ? *machine : Machine();
}

Plan PlanOf(const std::vector<Machine>& machines, int workers) {
  const auto plan = MakePlan(
      machines, AssumedCalibration(),
      {.profile = *LoadGradientProfile("resnet50"), .workers = workers});
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *plan : Plan{};
}

// The cards of each GPU of a job of two such machines, by bus id.
std::map<std::string, std::string> CardsByBus(const Machine& machine,
                                              const Plan& plan) {
  std::map<std::string, std::string> cards;
  for (size_t g = 0; g < machine.gpus.size(); ++g) {
    std::string& mine = cards[ToString(machine.gpus[g].bdf).substr(0, 7)];
    for (const Rail& rail : plan.machines[0].gpus[g].rails) {
      for (const Nic& nic : machine.nics) {
        if (nic.name == rail.nic) {
          mine += ToString(nic.bdf.value_or(Bdf{})).substr(0, 7);
        }
      }
    }
  }
  return cards;
}

TEST(PublishedPlan, EachGpuOfAzureNdv4HasItsCard) {
  TELEGRAD_SKIP_WITHOUT_PUBLISHED_FIXTURES();
  const Machine machine = Load("nccl-azure-ndv4-a100.xml");
  const Plan plan = PlanOf({machine}, 2);
  EXPECT_EQ(plan.network, NetworkKind::kInfiniBand);
  const std::map<std::string, std::string> expected = {
      {"0001:00", "0101:00"}, {"0002:00", "0102:00"}, {"0003:00", "0103:00"},
      {"0004:00", "0104:00"}, {"000b:00", "0105:00"}, {"000c:00", "0106:00"},
      {"000d:00", "0107:00"}, {"000e:00", "0108:00"}};
  EXPECT_EQ(CardsByBus(machine, plan), expected);
}

TEST(PublishedPlan, EachGpuOfAzureNdv5HasItsCard) {
  TELEGRAD_SKIP_WITHOUT_PUBLISHED_FIXTURES();
  const Machine machine = Load("nccl-azure-ndv5-h100.xml");
  const std::map<std::string, std::string> expected = {
      {"0001:00", "0101:00"}, {"0002:00", "0102:00"}, {"0003:00", "0103:00"},
      {"0008:00", "0104:00"}, {"0009:00", "0105:00"}, {"000a:00", "0106:00"},
      {"000b:00", "0107:00"}, {"000c:00", "0108:00"}};
  EXPECT_EQ(CardsByBus(machine, PlanOf({machine}, 2)), expected);
}

TEST(PublishedPlan, PairsOfGpusShareTheCardsOfP4d) {
  TELEGRAD_SKIP_WITHOUT_PUBLISHED_FIXTURES();
  const Machine machine = Load("nccl-aws-p4d-efa.xml");
  const Plan plan = PlanOf({machine}, 2);
  EXPECT_EQ(plan.network, NetworkKind::kEfa);
  const std::map<std::string, std::string> cards = CardsByBus(machine, plan);
  EXPECT_EQ(cards.at("0000:10"),
            "0000:10"
            "0000:10");  // 1c and 1d
  for (const GpuPlan& gpu : plan.machines[0].gpus) {
    ASSERT_THAT(gpu.rails, SizeIs(1));
    EXPECT_EQ(gpu.rails[0].users, 2);
  }
}

TEST(PublishedPlan, EachGpuOfOciHasBothPortsOfItsCard) {
  TELEGRAD_SKIP_WITHOUT_PUBLISHED_FIXTURES();
  const Plan plan = PlanOf({Load("nccl-oci-bm-h100-roce.xml")}, 2);
  EXPECT_EQ(plan.network, NetworkKind::kRoceV2);
  for (const GpuPlan& gpu : plan.machines[0].gpus) {
    ASSERT_THAT(gpu.rails, SizeIs(2));
    EXPECT_EQ(gpu.rails[0].path, PathClass::kPix);
    EXPECT_EQ(gpu.rails[1].gpu_share, 0.5);
  }
}

TEST(PublishedPlan, SharedAndFarCards) {
  TELEGRAD_SKIP_WITHOUT_PUBLISHED_FIXTURES();
  const Plan pascal = PlanOf({Load("hwloc-llnl-pascal-2xP100-1xEDR.xml")}, 2);
  for (const GpuPlan& gpu : pascal.machines[0].gpus) {
    ASSERT_THAT(gpu.rails, SizeIs(1));
    EXPECT_EQ(gpu.rails[0].nic, "mlx5_0");
  }
  const Plan g4dn = PlanOf({Load("hwloc-aws-g4dn-metal-8xT4-EFA.xml")}, 2);
  EXPECT_EQ(g4dn.network, NetworkKind::kEfa);
  for (const GpuPlan& gpu : g4dn.machines[0].gpus) {
    ASSERT_THAT(gpu.rails, SizeIs(1));
    EXPECT_EQ(gpu.rails[0].nic, "rdmap197s0");
    EXPECT_EQ(gpu.memory, MemoryPath::kStaging);
  }
}

TEST(PublishedPlan, OnlyTheInfiniBandGroupServes) {
  TELEGRAD_SKIP_WITHOUT_PUBLISHED_FIXTURES();
  const Plan plan =
      PlanOf({Load("hwloc-llnl-ulna-arm64-mixed-IB-RoCE.xml")}, 2);
  EXPECT_EQ(plan.network, NetworkKind::kInfiniBand);
  ASSERT_THAT(plan.machines[0].gpus, SizeIs(2));
  std::set<std::string> names;
  for (const GpuPlan& gpu : plan.machines[0].gpus) {
    for (const Rail& rail : gpu.rails) names.insert(rail.nic);
  }
  EXPECT_THAT(names, ElementsAre("mlx5_0", "mlx5_3"));
}

TEST(PublishedPlan, MachinesOfDifferentKindsUseTcp) {
  TELEGRAD_SKIP_WITHOUT_PUBLISHED_FIXTURES();
  const Plan plan = PlanOf({Load("nccl-azure-ndv4-a100.xml"),
                            Load("nccl-azure-ncv4-a100-noRDMA.xml")},
                           0);
  EXPECT_EQ(plan.network, NetworkKind::kTcp);
  EXPECT_THAT(plan.warnings, Contains(HasSubstr("ncv4")));
  const Plan dgx2 = PlanOf({Load("hwloc-dgx2-16xV100-nvlink.xml")}, 0);
  EXPECT_EQ(dgx2.network, NetworkKind::kLocal);
  EXPECT_EQ(dgx2.aggregation, Aggregation::kLocal);
}

}  // namespace
}  // namespace telegrad
