#include "topology/sums.h"

#include <gmock/gmock.h>

#include "tests/testing/status_matchers.h"
#include "topology/apply.h"
#include "topology/plan.h"

// Which way sums of each size go, in a plan.
namespace telegrad {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::IsOk;

RankNetwork SomeNetwork(int ranks, int most, double bytes_per_s) {
  std::vector<int> hosts;
  for (int rank = 0; rank < ranks; ++rank) hosts.push_back(rank / most);
  RankNetwork network = NetworkOf(ranks, hosts);
  network.bytes_per_s = bytes_per_s;
  return network;
}

TEST(SumRanges, HaveForEachSizeWhatIsFastest) {
  for (const int ranks : {2, 3, 5, 8, 33, 64, 1000}) {
    for (const int most : {1, 2, 4}) {
      for (const double bytes_per_s : {125e6, 1.25e9, 12.5e9}) {
        const RankNetwork network = SomeNetwork(ranks, most, bytes_per_s);
        const std::vector<SumRange> ranges = SumRanges(network);
        SCOPED_TRACE(ToText(ranges));
        uint64_t before = 0;
        for (const SumRange& range : ranges) {
          EXPECT_GT(range.up_to_bytes, before);
          before = range.up_to_bytes;
        }
        EXPECT_EQ(before, kAnySize);
        for (size_t size = 4; size <= size_t{1} << 30; size *= 2) {
          EXPECT_EQ(WayOf(ranges, size), FastestSum(size, network)) << size;
        }
      }
    }
  }
}

Plan SumsPathOf(const std::vector<std::string>& hosts, double link_gbps = 0,
                bool is_of_each = false) {
  PlanRequest request;
  request.worker_hosts = hosts;
  request.link_gbps = link_gbps;
  request.is_link_of_each_worker = is_of_each;
  auto plan = PlanPath({}, request);
  EXPECT_THAT(plan, IsOk());
  return plan.ok() ? *std::move(plan) : Plan();
}

std::string SumsTextOf(const Plan& plan) {
  const Decision* found = FindDecision(plan, Decision::Kind::kSums);
  return found == nullptr ? "" : ToText(*found);
}

TEST(PlanOfSums, NamesTheirWaysBySizeHostsAndLink) {
  EXPECT_EQ(SumsTextOf(SumsPathOf({"a"})), "");
  EXPECT_THAT(SumsPathOf({"a"}).sums, IsEmpty());
  const Plan two = SumsPathOf({"a", "b"}, 1);
  EXPECT_THAT(two.hosts, ElementsAre(0, 1));
  EXPECT_THAT(SumsTextOf(two),
              HasSubstr("ring above: 2 workers on 2 hosts, 20 us and 1 Gb/s "
                        "between them"));
  EXPECT_THAT(SumsTextOf(SumsPathOf({"a", "b", "a", "b"})),
              HasSubstr("4 workers on 2 hosts, 20 us and 16 Gb/s (assumed)"));
  // An emulated link is between any two workers.
  const Plan each = SumsPathOf({"a", "a"}, 1, true);
  EXPECT_THAT(each.hosts, IsEmpty());
  EXPECT_THAT(SumsTextOf(each), HasSubstr("2 workers on 2 hosts"));
  std::vector<std::string> hosts;
  for (int i = 0; i < 64; ++i) hosts.push_back(std::to_string(i / 4));
  EXPECT_THAT(
      SumsTextOf(SumsPathOf(hosts, 10)),
      AllOf(HasSubstr("recursive_doubling to "), HasSubstr("halving_doubling"),
            HasSubstr("allgathers by bruck to "),
            HasSubstr("64 workers on 16 hosts")));
  hosts.resize(40);
  for (int i = 0; i < 40; ++i) hosts[i] = std::to_string(i / 8);
  EXPECT_THAT(SumsTextOf(SumsPathOf(hosts)), HasSubstr("two_level"));
}

TEST(PlanOfSums, IsInItsFile) {
  const Plan plan = SumsPathOf({"a", "b", "b"}, 10);
  ASSERT_GT(plan.sums.size(), 1u);
  const auto read = PlanFromJson(PlanToJson(plan));
  ASSERT_THAT(read, IsOk());
  EXPECT_EQ(read->sums, plan.sums);
  EXPECT_EQ(read->hosts, plan.hosts);
  Plan other = plan;
  other.sums.pop_back();
  EXPECT_NE(PlanFacts(other), PlanFacts(plan));
}

}  // namespace
}  // namespace telegrad
