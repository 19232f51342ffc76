// --gc-packing auto, in a whole cluster and as a function of the path.
#include "kvstore/job/path/data_path.h"
#include "tests/kvstore/cluster.h"
#include "tests/kvstore/oracle.h"

namespace telegrad {
namespace {

using testing::Cluster;
using testing::ClusterConfig;
using testing::GradOf;
using testing::IsOk;
using testing::Soon;

constexpr size_t kPackedElems = 1600;
constexpr int kPackedSteps = 4;

ClusterConfig PackingJob(PackingMode mode, const std::string& type = "2bit") {
  ClusterConfig config;
  config.workers = 3;
  config.servers = 2;
  config.tensors = {{"a", kPackedElems}, {"b", kPackedElems}};
  config.chunk_elems = 320;
  config.compression.type = type;
  config.compression.threshold = {ThresholdSpec::Kind::kAbsolute, 0.0078125f};
  config.compression.packing = mode;
  config.has_values = false;
  return config;
}

struct Exchanged {
  std::vector<std::vector<float>> sums = {};
  StoreStats traffic = {};
};

// Of worker 0.
Exchanged ExchangeOf(const ClusterConfig& config) {
  Exchanged seen;
  Cluster cluster(config);
  cluster.Run([&](KVStore& store) {
    std::vector<std::vector<float>> sums;
    for (int step = 0; step < kPackedSteps; ++step) {
      for (const Key key : {0u, 1u}) {
        std::vector<float>& grad = sums.emplace_back(kPackedElems);
        for (size_t i = 0; i < kPackedElems; ++i) {
          grad[i] = GradOf(store.group().rank(), step, i);
        }
        const Bytes view(grad.data(), 4 * grad.size());
        EXPECT_THAT(store.PushPull(key, view, view, 0).Wait(Soon()), IsOk());
      }
    }
    EXPECT_GT(store.stats().io_cpu_s, 0);
    if (store.group().rank() == 0) seen = {std::move(sums), store.stats()};
  });
  EXPECT_THAT(cluster.ServerStatus(0), IsOk());
  EXPECT_THAT(cluster.ServerStatus(1), IsOk());
  return seen;
}

TEST(Packing, IsThatOfTheLinkAndChangesNothingButBytes) {
  const Exchanged plain = ExchangeOf(PackingJob(PackingMode::kPlain));
  const Exchanged radix = ExchangeOf(PackingJob(PackingMode::kRadix));
  EXPECT_LT(radix.traffic.push_wire_bytes, plain.traffic.push_wire_bytes);
  EXPECT_EQ(radix.sums, plain.sums);
  ClusterConfig config = PackingJob(PackingMode::kAuto);
  for (const auto& [rate, like] :
       {std::pair(0.0, &plain), std::pair(50e6, &radix),
        std::pair(10e9, &plain)}) {
    config.link_bytes_per_s = rate;
    const Exchanged seen = ExchangeOf(config);
    EXPECT_EQ(seen.traffic.push_wire_bytes, like->traffic.push_wire_bytes)
        << rate;
    EXPECT_EQ(seen.sums, plain.sums);
  }
}

TEST(Packing, OfACodecsOwnTextStays) {
  ClusterConfig config = PackingJob(PackingMode::kAuto, "2bit:packing=0");
  config.link_bytes_per_s = 50e6;
  EXPECT_EQ(
      ExchangeOf(config).traffic.push_wire_bytes,
      ExchangeOf(PackingJob(PackingMode::kPlain)).traffic.push_wire_bytes);
}

// Codes are never read as what they are not.
TEST(Packing, OfWorkersThatDifferEndsTheJob) {
  Cluster cluster(PackingJob(PackingMode::kPlain));
  cluster.StartServers();
  std::vector<std::future<absl::Status>> done;
  for (int rank = 0; rank < 3; ++rank) {
    done.push_back(std::async(std::launch::async, [&cluster, rank] {
      testing::Worker store = cluster.MakeWorker(rank);
      CompressionConfig compression =
          PackingJob(PackingMode::kPlain).compression;
      if (rank == 2) compression.packing = PackingMode::kRadix;
      store.set_compression(compression);
      return cluster.Init(store, {});
    }));
  }
  for (auto& each : done) {
    EXPECT_THAT(
        each.get(),
        testing::StatusIs(absl::StatusCode::kFailedPrecondition, "packing"));
  }
}

// The plan's rate is known of links that gradients take, alone.
TEST(Packing, GoesByTheEmulatedLinkElseByThePlan) {
  DataPath path;
  path.plan.link_bytes_per_s = 100e6;
  EXPECT_EQ(path.link_bytes_per_s(), 0);  // nothing leaves the machine
  path.plan.network = NetworkKind::kTcp;
  EXPECT_EQ(path.link_bytes_per_s(), 100e6);
  path.transport.link_bytes_per_s = 1e9;
  EXPECT_EQ(path.link_bytes_per_s(), 1e9);
}

}  // namespace
}  // namespace telegrad
