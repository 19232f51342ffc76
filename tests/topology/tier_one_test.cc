#include <gmock/gmock.h>

#include "tests/testing/status_matchers.h"
#include "tests/topology/plan_machines.h"
#include "topology/apply.h"
#include "topology/plan.h"

namespace telegrad {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::IsOk;

Plan PathOf(const std::vector<std::string>& hosts,
            const Constraint<bool>& told = {}, int servers = 0) {
  PlanRequest request;
  request.worker_hosts = hosts;
  request.tier_one = told;
  request.servers = servers;
  auto plan = PlanPath({}, request);
  EXPECT_THAT(plan, IsOk());
  return plan.ok() ? *std::move(plan) : Plan();
}

std::string WhyOf(const Plan& plan) {
  const Decision* found = FindDecision(plan, Decision::Kind::kTierOne);
  return found == nullptr ? "" : ToText(*found);
}

TEST(TierOne, IsOnWhereItSavesBytesBetweenHosts) {
  const Plan two = PathOf({"a", "a", "b", "b"});
  EXPECT_THAT(two.pushers, ElementsAre(0, 0, 2, 2));
  EXPECT_EQ(WhyOf(two),
            "tier1 on: 4 workers on 2 hosts; one of each host "
            "pushes");
  // Ranks in turn, and hosts of different sizes.
  EXPECT_THAT(PathOf({"a", "b", "a", "b", "a"}).pushers,
              ElementsAre(0, 1, 0, 1, 0));
  const Plan one = PathOf({"a", "a", "a"});
  EXPECT_THAT(one.pushers, IsEmpty());
  EXPECT_EQ(WhyOf(one),
            "tier1 off: 3 workers on 1 host, which gradients do not leave");
  EXPECT_THAT(PathOf({"a", "a", "a"}, {}, 1).pushers, ElementsAre(0, 0, 0));
}

TEST(TierOne, IsNoQuestionOfOneWorkerAHost) {
  EXPECT_EQ(WhyOf(PathOf({"a", "b"})), "");
  EXPECT_EQ(WhyOf(PathOf({})), "");
  const Plan told = PathOf({"a", "b"}, {true, "--tier1 on"});
  EXPECT_THAT(told.pushers, IsEmpty());
  EXPECT_EQ(WhyOf(told), "tier1 off: --tier1 on: 2 workers on as many hosts");
}

TEST(TierOne, IsAsAUserSays) {
  const Plan on = PathOf({"a", "a"}, {true, "--tier1 on"});
  EXPECT_THAT(on.pushers, ElementsAre(0, 0));
  EXPECT_EQ(WhyOf(on),
            "tier1 on: --tier1 on: 2 workers on 1 host; one of each host "
            "pushes, though gradients do not leave it");
  const Plan off = PathOf({"a", "a", "b"}, {false, "--tier1 off"});
  EXPECT_THAT(off.pushers, IsEmpty());
  EXPECT_EQ(WhyOf(off), "tier1 off: --tier1 off: 3 workers on 2 hosts");
}

TEST(TierOne, TravelsWithThePlan) {
  const Plan plan = PathOf({"a", "a", "b"});
  EXPECT_NE(plan.digest, PathOf({"a", "b", "b"}).digest);
  const auto back = PlanFromJson(PlanToJson(plan));
  ASSERT_THAT(back, IsOk());
  EXPECT_EQ(back->pushers, plan.pushers);
  EXPECT_EQ(back->digest, plan.digest);
  std::string other = PlanToJson(plan);
  const size_t at = other.find("\"pushers\":[0,0,2]");
  ASSERT_NE(at, std::string::npos);
  other.replace(at, 17, "\"pushers\":[0,0,-7]");
  EXPECT_FALSE(PlanFromJson(other).ok());
}

TEST(TierOne, OfAGivenPlanIsDecidedForTheHostsOfTheRun) {
  // As the summary of a run has it: it was off on one host.
  const auto given = std::make_shared<const GivenPlan>(GivenPlan{
      "--plan p.json", *PlanFromJson(PlanToJson(PathOf({"a", "a", "a"})))});
  PlanRequest request{.given = given};
  const auto decide = [&](const std::vector<std::string>& hosts) {
    request.worker_hosts = hosts;
    std::vector<std::string> decisions;
    const auto plan = PlanPath({}, request);
    EXPECT_THAT(plan, IsOk());
    for (const Decision& each : plan->decisions) {
      if (each.what == Decision::Kind::kTierOne) {
        decisions.push_back(ToText(each));
      }
    }
    return decisions;
  };
  EXPECT_THAT(decide({"a", "a", "b"}),
              ElementsAre("tier1 on: 3 workers on 2 hosts; one of each host "
                          "pushes"));
  EXPECT_THAT(decide({"a", "b", "c"}), IsEmpty());
}

}  // namespace
}  // namespace telegrad
