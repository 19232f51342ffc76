#include <gmock/gmock.h>

#include "tests/kvstore/job/path_members.h"
#include "topology/apply.h"

// How frames in the memory of GPUs go, by what members of a job say.
namespace telegrad {
namespace {

using absl::StatusCode;
using testing::StatusIs;

// On two machines with two GPUs and a card each.
std::vector<MemberFacts> WithGpus() {
  std::vector<MemberFacts> members = {
      testing::On("worker/0", "a", Fabric::kInfiniBand),
      testing::On("worker/1", "b", Fabric::kInfiniBand)};
  for (MemberFacts& each : members) {
    each.machine = TestMachine(each.host, 2, 1, Fabric::kInfiniBand, 100);
    each.machine->capabilities.gdr = Tri::kYes;
  }
  return members;
}

TEST(GpuPath, MemoryOfGpusIsUsedWhereTensorsLieThere) {
  std::vector<MemberFacts> members = WithGpus();
  const auto memory = [&] {
    return Apply(testing::MustPath(members), members[0].label()).memory;
  };
  EXPECT_EQ(memory(), MemoryPath::kHost);
  EXPECT_FALSE(UsesGdr(testing::MustPath(members)));
  members[1].gdr = "auto";  // one is enough
  EXPECT_EQ(memory(), MemoryPath::kGdr);
  EXPECT_TRUE(UsesGdr(testing::MustPath(members)));
  members[1].gdr = "off";
  EXPECT_EQ(memory(), MemoryPath::kStaging);
  members[1].gdr = "on";
  EXPECT_EQ(memory(), MemoryPath::kGdr);
  members[0].transport = "tcp";
  EXPECT_THAT(
      PlanPath(RequestPath(members)->machines, RequestPath(members)->request),
      StatusIs(StatusCode::kFailedPrecondition,
               "GPUDirect RDMA was asked for, but a"));
  members[1].gdr = "auto";
  EXPECT_EQ(memory(), MemoryPath::kStaging);
  members[0].gdr = "off";
  members[1].gdr = "on";
  EXPECT_THAT(RequestPath(members),
              StatusIs(StatusCode::kFailedPrecondition,
                       "gdr: worker/0 has off, worker/1 has on; give all the "
                       "same --gdr"));
}

// A peer over a network, of which only the packets' checks are known.
class Network : public TransportContext {
 public:
  bool is_in_memory = false;
  bool checks_packets = false;

 private:
  TransportInfo info() const override { return {}; }
  bool IsInMemory(EndpointId) const override { return is_in_memory; }
  bool ChecksPackets(EndpointId) const override { return checks_packets; }
  absl::StatusOr<std::string> Listen() override { return ""; }
  absl::StatusOr<EndpointId> Connect(absl::string_view) override { return 0; }
  absl::Status Send(EndpointId, ConstBytes, ConstBytes, SendDone) override {
    return absl::OkStatus();
  }
  void Close(EndpointId) override {}
  bool Progress(TimePoint) override { return false; }
  void Wake() override {}
};

TEST(GpuPath, ChecksumsAreLeftOutInMemoryAndForGpusOverCheckedPackets) {
  Network network;
  DataPath path;
  EXPECT_FALSE(path.IsUnchecked(network, 1));
  network.checks_packets = true;
  EXPECT_FALSE(path.IsUnchecked(network, 1));  // nothing is on GPUs
  std::vector<MemberFacts> members = WithGpus();
  members[0].gdr = "auto";
  path.plan = testing::MustPath(members);
  EXPECT_TRUE(path.IsUnchecked(network, 1));
  network.checks_packets = false;
  EXPECT_FALSE(path.IsUnchecked(network, 1));
  network.is_in_memory = true;
  EXPECT_TRUE(path.IsUnchecked(network, 1));
  path.plan = {};
  EXPECT_TRUE(path.IsUnchecked(network, 1));
}

}  // namespace
}  // namespace telegrad
