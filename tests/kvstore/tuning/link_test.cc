#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "base/exit_code.h"
#include "kvstore/tuning/link_calibration.h"
#include "tests/kvstore/cluster.h"
#include "tests/kvstore/ps/fake_server.h"
#include "tests/kvstore/tuning/scripted_store.h"

// What a store says of the link, and what is kept of it.
namespace telegrad {
namespace {

using std::chrono::milliseconds;
using testing::Cluster;
using testing::ClusterConfig;
using testing::FakeServer;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::Job;
using testing::ScriptedStore;
using testing::Soon;
using testing::StatusIs;

constexpr milliseconds kShort{20};

void ExpectMeasured(const absl::StatusOr<LinkFigures>& link) {
  ASSERT_THAT(link, IsOk());
  for (const Figure* figure : {&link->send, &link->receive, &link->latency_s}) {
    EXPECT_GT(figure->value, 0);
    EXPECT_EQ(figure->confidence, Confidence::kMeasured);
  }
  EXPECT_LT(link->latency_s.value, 60);
  // Both or none.
  EXPECT_EQ(link->frame_cpu_s.value > 0, link->cpu_s_per_byte.value > 0);
}

struct Shape {
  const char* transport;
  int workers;
  int servers;
};

class LinkOver : public ::testing::TestWithParam<Shape> {};

TEST_P(LinkOver, IsMeasuredAndTheSameForAllWorkers) {
  const std::string transport = GetParam().transport;
  if (absl::StrContains(DescribeTransports(), transport + ": not in")) {
    GTEST_SKIP() << transport << " is not in this build";
  }
  ClusterConfig config = Job(GetParam().workers, GetParam().servers);
  config.transport = transport;
  std::vector<absl::StatusOr<LinkFigures>> links(
      static_cast<size_t>(config.workers), absl::UnknownError("not measured"));
  Cluster(config).Run([&](KVStore& store) {
    const StoreStats before = store.stats();
    auto& mine = links[static_cast<size_t>(store.group().rank())];
    mine = store.link()->Measure(kShort);
    ExpectMeasured(store.link()->Measure(kShort));  // and again
    EXPECT_EQ(store.stats().push_wire_bytes, before.push_wire_bytes);
    EXPECT_EQ(store.stats().pull_wire_bytes, before.pull_wire_bytes);
    Buffer memory(132);
    std::fill_n(memory.as<float>(), 33, 1.0f);
    EXPECT_THAT(store.PushPull(0, memory.view(), memory.view(), 0).Wait(Soon()),
                IsOk());
    EXPECT_EQ(memory.as<float>()[32],
              static_cast<float>(store.group().num_workers()));
    // Two chunks, each a push and its answer.
    EXPECT_EQ(store.stats().num_frames, before.num_frames + 4);
    const double io_cpu_s = store.stats().io_cpu_s;
    EXPECT_GT(io_cpu_s, before.io_cpu_s);
    store.Close();
    EXPECT_GE(store.stats().io_cpu_s, io_cpu_s);
  });
  for (const auto& link : links) {
    ExpectMeasured(link);
    EXPECT_EQ(*link, *links[0]);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Clusters, LinkOver,
    ::testing::Values(Shape{"inproc", 1, 1}, Shape{"inproc", 3, 2},
                      Shape{"tcp", 2, 1}, Shape{"tcp", 3, 2},
                      Shape{"ucx", 1, 2}, Shape{"ucx", 2, 1}),
    [](const auto& test) {
      return test.param.transport + std::to_string(test.param.workers) + "x" +
             std::to_string(test.param.servers);
    });

TEST(Link, IsNoFasterThanTheEmulatedOne) {
  for (const double rate : {1e6, 20e6}) {
    ClusterConfig config = Job(2, 1);
    config.link_bytes_per_s = rate;
    Cluster(config).Run([rate](KVStore& store) {
      const absl::StatusOr<LinkFigures> link = store.link()->Measure(kShort);
      ExpectMeasured(link);
      // Loopback is a thousand times faster. A thread that was late to see the
      // first bytes sees the others in less time.
      EXPECT_LE(link->send.value, 2 * rate);
      EXPECT_LE(link->receive.value, 2 * rate);
      EXPECT_THAT(store.link()->identity(), HasSubstr("emulated"));
    });
  }
}

TEST(Link, IsNotMeasuredOutsideOfAJob) {
  Cluster cluster(Job(1, 1));
  cluster.Run([](KVStore& store) {
    store.Close();
    EXPECT_FALSE(store.link()->Measure(kShort).ok());
  });
}

TEST(Link, EndsWithTheStoresErrorWhenAServerDies) {
  ClusterConfig config = Job(1, 1);
  config.has_values = false;
  Cluster cluster(config);
  auto server = std::make_unique<FakeServer>(cluster.Options());
  testing::Worker store = cluster.MakeWorker(0);
  std::vector<Buffer> values;
  ASSERT_THAT(cluster.Init(store, values), IsOk());
  auto link = std::async(std::launch::async,
                         [&] { return store->link()->Measure(kShort); });
  server->AwaitFrame(FrameType::kProbe);  // it is never answered
  server = nullptr;                       // as if killed
  const absl::Status status = link.get().status();
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kServerLost) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("server/0"));
}

TEST(Link, IsMeasuredAgainOnceAServerThatWasLateHasAnswered) {
  ClusterConfig config = Job(1, 1);
  config.has_values = false;
  Cluster cluster(config);
  FakeServer server(cluster.Options());
  DistOptions options = cluster.Options();
  options.wanted_rank = 0;
  options.operation_timeout = std::chrono::seconds(2);
  testing::Worker store(options);
  std::vector<Buffer> values;
  ASSERT_THAT(cluster.Init(store, values), IsOk());
  EXPECT_THAT(store->link()->Measure(kShort),
              StatusIs(absl::StatusCode::kDeadlineExceeded, "did not answer"));
  EXPECT_THAT(store->link()->Measure(kShort),
              StatusIs(absl::StatusCode::kFailedPrecondition, "still owes"));
  server.AnswerProbes();
  const TimePoint deadline = Soon();
  absl::StatusOr<LinkFigures> link = absl::UnknownError("not measured");
  do {
    link = store->link()->Measure(kShort);
  } while (absl::IsFailedPrecondition(link.status()) &&
           Clock::now() < deadline);
  ExpectMeasured(link);
}

// What a server sends that nobody asked for.
TEST(Link, RefusesEchoesThatNobodyAskedFor) {
  for (const size_t bytes : {size_t{0}, size_t{64} << 10}) {
    ClusterConfig config = Job(1, 1);
    config.has_values = false;
    Cluster cluster(config);
    FakeServer server(cluster.Options());
    testing::Worker store = cluster.MakeWorker(0);
    std::vector<Buffer> values;
    ASSERT_THAT(cluster.Init(store, values), IsOk());
    server.SendEcho(bytes);
    const auto events = cluster.log().Await(1);
    ASSERT_TRUE(events.has_value());
    EXPECT_EQ(events->front().code, ExitCode::kMismatch);
    EXPECT_THAT(events->front().message, HasSubstr("echo of"));
  }
}

// What is looked at on a busy machine differs from run to run.
constexpr LinkTimes kNoLook{.measure = kShort, .check = Duration::zero()};

// A folder for each worker, as on machines of their own.
class KeptLink : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "/link-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  std::string Folder(int rank) const {
    return root_ + "/" + std::to_string(rank);
  }

  // Whether it was measured before; all must say the same.
  bool IsCached(const ClusterConfig& config, bool recalibrate = false) {
    std::vector<LinkCalibration> links(static_cast<size_t>(config.workers));
    Cluster(config).Run([&](KVStore& store) {
      CalibrationCache cache(
          {.folder = Folder(store.group().rank()),
           .identity = "0123 machine",
           .recalibrate = recalibrate && store.group().rank() == 0});
      const auto link = CalibrateLink(store, &cache, kNoLook);
      ASSERT_THAT(link, IsOk());
      links[static_cast<size_t>(store.group().rank())] = *link;
    });
    for (const LinkCalibration& link : links) {
      EXPECT_EQ(link.is_cached, links[0].is_cached);
      EXPECT_EQ(link.figures, links[0].figures);
      EXPECT_THAT(Describe(link),
                  HasSubstr(link.is_cached ? "from the cache" : "measured in"));
    }
    last_ = links[0].figures;
    return links[0].is_cached;
  }

  std::string root_;
  LinkFigures last_ = {};
};

TEST_F(KeptLink, IsUsedAgainByTheSameMembersOnly) {
  EXPECT_FALSE(IsCached(Job(2, 1)));
  const LinkFigures first = last_;
  EXPECT_TRUE(IsCached(Job(2, 1)));
  EXPECT_EQ(last_, first);
  EXPECT_FALSE(IsCached(Job(3, 1)));
  EXPECT_FALSE(IsCached(Job(2, 2)));
  ClusterConfig other = Job(2, 1);
  other.link_bytes_per_s = 50e6;
  EXPECT_FALSE(IsCached(other));
  other.link_latency_s = 1e-3;
  EXPECT_FALSE(IsCached(other));
  EXPECT_TRUE(IsCached(other));
  other.transport = "tcp";
  EXPECT_FALSE(IsCached(other));
  EXPECT_TRUE(IsCached(Job(2, 1)));
}

TEST_F(KeptLink, IsMeasuredByAllWhereOneHasNone) {
  EXPECT_FALSE(IsCached(Job(2, 1)));
  std::filesystem::remove_all(Folder(1));
  EXPECT_FALSE(IsCached(Job(2, 1)));
  EXPECT_TRUE(IsCached(Job(2, 1)));
  EXPECT_FALSE(IsCached(Job(2, 1), /*recalibrate=*/true));
  EXPECT_TRUE(IsCached(Job(2, 1)));
}

TEST_F(KeptLink, IsMeasuredAgainWhereWorkersHaveKeptDifferentOnes) {
  EXPECT_FALSE(IsCached(Job(2, 1)));
  for (const auto& file : std::filesystem::directory_iterator(Folder(0))) {
    std::ifstream in(file.path());
    std::string heading;
    std::getline(in, heading);
    nlohmann::json kept = nlohmann::json::parse(in);
    kept["links"][0]["send"]["value"] = 1e12;
    std::ofstream(file.path()) << heading << "\n" << kept;
  }
  EXPECT_FALSE(IsCached(Job(2, 1)));
  EXPECT_LT(last_.send.value, 1e12);
}

LinkFigures Link(double out, double in) {
  return {.name = "link",
          .send = {.value = out},
          .receive = {.value = in},
          .latency_s = {.value = 1e-5}};
}

TEST_F(KeptLink, MustStandALook) {
  const auto calibrate = [this](std::deque<LinkFigures> links) {
    ScriptedStore store({}, std::move(links));
    CalibrationCache cache({.folder = Folder(0), .identity = "0123 machine"});
    return CalibrateLink(store, &cache, {});
  };
  ASSERT_THAT(calibrate({Link(1e9, 1e8)}), IsOk());
  for (const LinkFigures& seen : {Link(1.4e9, 1e8), Link(1e9, 0.7e8)}) {
    const auto kept = calibrate({seen});
    ASSERT_THAT(kept, IsOk());
    EXPECT_TRUE(kept->is_cached);
    EXPECT_EQ(kept->figures, Link(1e9, 1e8));
  }
  for (const LinkFigures& seen : {Link(1.6e9, 1e8), Link(1e9, 0.6e8)}) {
    const auto anew = calibrate({seen, Link(2e9, 1e8)});
    ASSERT_THAT(anew, IsOk());
    EXPECT_FALSE(anew->is_cached);
    EXPECT_EQ(anew->figures, Link(2e9, 1e8));
    EXPECT_THAT(Describe(*anew),
                HasSubstr("the cache had 8 Gb/s out, 0.8 Gb/s in"));
    std::filesystem::remove_all(Folder(0));
    ASSERT_THAT(calibrate({Link(1e9, 1e8)}), IsOk());
  }
}

TEST_F(KeptLink, NeedsNoCache) {
  Cluster(Job(1, 1)).Run([](KVStore& store) {
    const auto link = CalibrateLink(store, nullptr, {});
    ASSERT_THAT(link, IsOk());
    EXPECT_FALSE(link->is_cached);
    EXPECT_GT(link->figures.send.value, 0);
  });
}

}  // namespace
}  // namespace telegrad
