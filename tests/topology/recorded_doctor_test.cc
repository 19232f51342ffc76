// What the doctor says of recorded machines. The numbers are those of the
// machines in recorded_test.cc.
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "tests/topology/trees.h"
#include "topology/doctor.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;

class RecordedDoctor : public ::testing::Test {
 protected:
  void SetUp() override { TELEGRAD_SKIP_WITHOUT_PUBLISHED_FIXTURES(); }
};

// Sentences of the findings of a check that are as severe as `level`.
std::string Sentences(const std::vector<Finding>& findings,
                      const std::string& id, Level level) {
  std::string sentences;
  for (const Finding& each : findings) {
    if (each.id != id || each.severity != level) continue;
    sentences += each.sentence + "\n";
  }
  return sentences;
}

constexpr char kQuirks[] = "sysfs-prometheus-quirks.tar.gz!procfs/fixtures/sys";

TEST_F(RecordedDoctor, FindsWhatEachMachineIsThereFor) {
  const struct {
    const char* machine;
    int priority;
    const char* id;
    Level level;
    const char* words;
  } cases[] = {
      {"sysfs-gpud-h100-8xNDR-bond.tar.gz", 3, "T04", Level::kWarn,
       "mlx5_bond_0"},                                              // 15
      {kQuirks, 2, "T24", Level::kWarn, "eth0 for priority 2"},     // 16
      {kQuirks, 5, "T24", Level::kWarn, "eth0 for priority 5"},     // 16
      {kQuirks, 3, "T24", Level::kOk, "ECN is on for priority 3"},  // 16
      {"synthetic/roce-gid-4entry", 3, "T25", Level::kInfo,
       "mlx5_bond_0/1 is a bond"},  // 18
      {"synthetic/roce-gid-4entry", 3, "T05", Level::kOk, "routable"},
      {"synthetic/roce-gid-linklocal-only", 3, "T05", Level::kFail,
       "mlx5_0/1 has no routable RoCE v2 GID"},                         // 22
      {"synthetic/container-errno", 3, "T01", Level::kFail, "mlx5_0"},  // 24
      {"synthetic/container-errno", 3, "T05", Level::kOk, "routable"},
  };
  for (const auto& each : cases) {
    SCOPED_TRACE(std::string(each.machine) + " " + each.id);
    const std::vector<Finding> findings =
        Examine(DetectRecorded(each.machine), {.priority = each.priority});
    EXPECT_THAT(Sentences(findings, each.id, each.level), HasSubstr(each.words))
        << ToText(findings);
  }
}

// 19 beside 18
TEST_F(RecordedDoctor, ComparesHostsWithDifferentRowsAndMtus) {
  std::vector<Machine> machines;
  for (const char* name : {"roce-gid-4entry", "roce-gid-2entry-peer"}) {
    machines.push_back(DetectRecorded(std::string("synthetic/") + name));
    machines.back().host = name;
  }
  const std::vector<Finding> findings = Compare(machines);
  EXPECT_THAT(Sentences(findings, "T07", Level::kInfo),
              HasSubstr("that is right"));
  EXPECT_THAT(Sentences(findings, "T08", Level::kWarn),
              HasSubstr("1024 is used on all"));
  for (const Finding& each : findings) {
    if (each.id != "T08") continue;
    EXPECT_EQ(each.hint,
              "on roce-gid-2entry-peer: ip link set dev eth2 mtu 9000; and the "
              "switch");
  }
}

}  // namespace
}  // namespace telegrad
