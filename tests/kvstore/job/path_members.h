#pragma once

#include <string>
#include <utility>
#include <vector>

#include "kvstore/job/path/data_path.h"
#include "tests/testing/status_matchers.h"
#include "tests/topology/plan_machines.h"

namespace telegrad::testing {

// A member on a machine of its own with one card of `fabric`, told nothing.
inline MemberFacts On(const std::string& name, const std::string& host,
                      Fabric fabric, double gbps = 100) {
  return {.name = name,
          .host = host,
          .boot_id = "1",
          .interface = fabric == Fabric::kEthernet ? "eth0" : "ib0",
          .transports = {"ucx", "ofi", "tcp"},
          .transport = "auto",
          .tier_one = std::nullopt,
          .machine = TestMachine(host, 0, 1, fabric, gbps)};
}

inline std::vector<MemberFacts> Three(Fabric first, Fabric second,
                                      Fabric server) {
  return {On("worker/0", "a", first), On("worker/1", "b", second),
          On("server/0", "s", server)};
}

inline Plan MustPath(const std::vector<MemberFacts>& members) {
  const auto path = RequestPath(members);
  EXPECT_THAT(path, IsOk());
  if (!path.ok()) return {};
  auto plan = PlanPath(path->machines, path->request);
  EXPECT_THAT(plan, IsOk());
  return plan.ok() ? *std::move(plan) : Plan();
}

}  // namespace telegrad::testing
