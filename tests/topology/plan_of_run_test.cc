#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/topology/plan_machines.h"
#include "topology/plan.h"

namespace telegrad {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

TEST(PlanOfARun, HasWhatTheRunHasFixed) {
  std::vector<Machine> machines = Cluster(2, Fabric::kInfiniBand, 100, 2);
  PlanRequest request = Request("vgg16");
  const Plan best = MustPlan(machines, AssumedCalibration(), request);
  EXPECT_EQ(best.aggregation, Aggregation::kRing);
  EXPECT_TRUE(best.is_hierarchical);
  request.network = {"TCP", "--transport tcp"};
  request.servers = 2;
  request.workers = 2;
  request.aggregation = {Aggregation::kDedicatedServers, "--servers 2"};
  request.host_memory = {true, "gradients are in host memory"};
  request.connections = {7, "--connections 7"};
  const Plan plan = MustPlan(machines, AssumedCalibration(), request);
  EXPECT_EQ(plan.network, NetworkKind::kTcp);
  EXPECT_EQ(plan.aggregation, Aggregation::kDedicatedServers);
  EXPECT_FALSE(plan.is_hierarchical);
  EXPECT_EQ(plan.connections, 7);
  ASSERT_EQ(plan.machines[0].gpus.size(), 1u);
  EXPECT_EQ(plan.machines[0].gpus[0].memory, MemoryPath::kHost);
  EXPECT_THAT(Lines(plan),
              AllOf(Contains("network TCP: --transport tcp"),
                    Contains("aggregation dedicated-servers: --servers 2"),
                    Contains("connections 7: --connections 7")));
  EXPECT_NE(plan.digest, best.digest);
  EXPECT_GT(plan.comm_s, 0);
}

// Each worker process has one GPU, and sums for itself.
TEST(PlanOfARun, HasNoSumsOverGpusOfAMachine) {
  const std::vector<Machine> machines = Cluster(2, Fabric::kInfiniBand, 100, 2);
  PlanRequest request = Request("vgg16");
  request.worker_hosts = {"node0", "node0", "node1", "node1"};
  EXPECT_FALSE(
      MustPlan(machines, AssumedCalibration(), request).is_hierarchical);
}

TEST(PlanOfARun, AdvisesWhatIsFasterByMoreThanTheSpread) {
  // A link of 10 Gb/s to the server, which four workers share.
  PlanRequest request = Request("vgg16", 4, 2.5);
  request.is_link_of_busy_servers = true;
  request.servers = 1;
  request.aggregation = {Aggregation::kDedicatedServers, "--servers 1"};
  Calibration calibration = Measured();
  const Plan slow = MustPlan({}, calibration, request);
  ASSERT_TRUE(slow.advised.has_value());
  EXPECT_EQ(*slow.advised, Aggregation::kColocatedServers);
  EXPECT_THAT(Lines(slow),
              Contains(AllOf(HasSubstr("advice "), HasSubstr("predicted"))));
  EXPECT_EQ(slow.aggregation, Aggregation::kDedicatedServers);
  // A server with so much bandwidth is no slower.
  request.servers = 4;
  request.link_gbps = 10;
  EXPECT_FALSE(MustPlan({}, calibration, request).advised.has_value());
  request.servers = 1;
  request.link_gbps = 2.5;
  calibration.reduce.spread = 0.9;  // nothing is sure
  EXPECT_FALSE(MustPlan({}, calibration, request).advised.has_value());
}

}  // namespace
}  // namespace telegrad
