#include <cstring>

#include "absl/strings/match.h"
#include "tests/kvstore/cluster.h"
#include "tests/kvstore/oracle.h"
#include "transport/transport.h"

// Rounds over a whole cluster against the oracle, bit by bit.
namespace telegrad {
namespace {

using testing::Cluster;
using testing::ClusterConfig;
using testing::GradOf;
using testing::IsOk;
using testing::SgdOracle;
using testing::Soon;
using testing::TensorOracle;

constexpr int kSumSteps = 6;

std::vector<float> Floats(const Buffer& buffer) {
  return {buffer.as<float>(), buffer.as<float>() + buffer.size() / 4};
}

// expected[step][tensor]
using Expected = std::vector<std::vector<std::vector<float>>>;

Expected Expect(const ClusterConfig& config, const Cluster& cluster) {
  const bool on_server = config.optimizer.update_on == UpdateOn::kServer;
  const std::vector<Buffer> values = cluster.MakeValues(0);
  Expected expected(kSumSteps);
  for (size_t key = 0; key < config.tensors.size(); ++key) {
    TensorOracle sums(config.tensors[key].num_elems, config.workers,
                      config.compression);
    SgdOracle sgd(Floats(values[key]), config.optimizer.sgd);
    for (int step = 0; step < kSumSteps; ++step) {
      const std::vector<float> sum = sums.NextSums(on_server);
      expected[static_cast<size_t>(step)].push_back(on_server ? sgd.Update(sum)
                                                              : sum);
    }
    EXPECT_TRUE(sums.IsConserved());
  }
  return expected;
}

bool SameBits(const Buffer& out, const std::vector<float>& expected) {
  return out.size() == 4 * expected.size() &&
         std::memcmp(out.data(), expected.data(), out.size()) == 0;
}

struct Shape {
  bool separate_pull = false;  // Push, then Pull
  bool reversed = false;       // priorities and order of starting
};

// One step of one worker on all tensors; the gradient's memory is the output's.
std::vector<Buffer> Step(KVStore& store, const ClusterConfig& config, int step,
                         Shape shape) {
  std::vector<Buffer> views;
  for (const TensorSpec& tensor : config.tensors) {
    views.emplace_back(4 * tensor.num_elems);
    for (size_t i = 0; i < tensor.num_elems; ++i) {
      views.back().as<float>()[i] = GradOf(store.group().rank(), step, i);
    }
  }
  std::vector<Ticket> tickets(views.size());
  for (size_t n = 0; n < views.size(); ++n) {
    const size_t k = shape.reversed ? views.size() - 1 - n : n;
    const int priority = static_cast<int>(shape.reversed ? k : 100 - k);
    const auto key = static_cast<Key>(k);
    const Bytes view = views[k].view();
    tickets[k] = shape.separate_pull
                     ? store.Push(key, view, priority)
                     : store.PushPull(key, view, view, priority);
  }
  for (const Ticket& ticket : tickets) EXPECT_THAT(ticket.Wait(Soon()), IsOk());
  if (!shape.separate_pull) return views;
  for (size_t k = 0; k < views.size(); ++k) {
    const Ticket pull = store.Pull(static_cast<Key>(k), views[k].view(), 0);
    EXPECT_THAT(pull.Wait(Soon()), IsOk());
  }
  return views;
}

void Verify(const ClusterConfig& config, Shape shape = {}) {
  Cluster cluster(config);
  const Expected expected = Expect(config, cluster);
  cluster.Run([&](KVStore& store) {
    EXPECT_EQ(store.group().num_workers(), config.workers);
    EXPECT_EQ(store.group().num_servers(), config.servers);
    for (int step = 0; step < kSumSteps; ++step) {
      const std::vector<Buffer> out = Step(store, config, step, shape);
      for (size_t key = 0; key < out.size(); ++key) {
        EXPECT_TRUE(
            SameBits(out[key], expected[static_cast<size_t>(step)][key]))
            << "worker " << store.group().rank() << " step " << step << " key "
            << key;
      }
    }
  });
  for (int i = 0; i < config.servers; ++i) {
    EXPECT_THAT(cluster.ServerStatus(static_cast<size_t>(i)), IsOk());
  }
  EXPECT_EQ(cluster.log().size(), 0u);
}

ClusterConfig Small(int workers, int servers) {
  ClusterConfig config;
  config.workers = workers;
  config.servers = servers;
  config.tensors = {{"one", 1}, {"some", 33}, {"more", 100}, {"last", 64}};
  return config;
}

ThresholdSpec Fixed(float t) { return {ThresholdSpec::Kind::kAbsolute, t}; }

CompressionConfig TwoBit(ReplyMode reply, ThresholdSpec threshold) {
  CompressionConfig config;
  config.type = "2bit";
  config.reply = reply;
  config.threshold = threshold;
  return config;
}

OptimizerConfig OnServer() {
  return {.update_on = UpdateOn::kServer,
          .sgd = {.learning_rate = 0.1f,
                  .momentum_rate = 0.9f,
                  .weight_decay = 0.01f,
                  .rescale = 0.5f}};
}

constexpr ReplyMode kReplyModes[] = {ReplyMode::kSum, ReplyMode::kReencode,
                                     ReplyMode::kDense};
constexpr float kThreshold = 1.0f / 128;

class Sums : public ::testing::TestWithParam<std::tuple<int, int>> {
 protected:
  ClusterConfig config_ =
      Small(std::get<0>(GetParam()), std::get<1>(GetParam()));
};

TEST_P(Sums, OfCodecNoneAreExact) { Verify(config_); }

TEST_P(Sums, OfTwoBitWithAFixedThresholdAreExactInAllReplyModes) {
  for (const ReplyMode reply : kReplyModes) {
    SCOPED_TRACE(ToString(reply));
    config_.compression = TwoBit(reply, Fixed(kThreshold));
    Verify(config_);
  }
}

TEST_P(Sums, OfTwoBitWithAnAgreedThresholdAreExactInAllReplyModes) {
  for (const ReplyMode reply : kReplyModes) {
    SCOPED_TRACE(ToString(reply));
    config_.compression = TwoBit(reply, {});
    Verify(config_);
  }
}

TEST_P(Sums, OfTwoBitInRadixPackingAreTheSame) {
  for (const ReplyMode reply : kReplyModes) {
    SCOPED_TRACE(ToString(reply));
    config_.compression = TwoBit(reply, Fixed(kThreshold));
    config_.compression.packing = PackingMode::kRadix;
    Verify(config_);
  }
}

TEST_P(Sums, OfOneBitAreExactInAllReplyModes) {
  for (const ReplyMode reply : kReplyModes) {
    SCOPED_TRACE(ToString(reply));
    config_.compression = {.type = "1bit", .reply = reply};
    Verify(config_);
  }
}

TEST_P(Sums, BecomeWeightsOnTheServer) {
  config_.optimizer = OnServer();
  Verify(config_);
  config_.compression = TwoBit(ReplyMode::kSum, Fixed(kThreshold));
  Verify(config_);
  config_.compression = TwoBit(ReplyMode::kDense, {});
  Verify(config_);
}

INSTANTIATE_TEST_SUITE_P(Clusters, Sums,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4),
                                            ::testing::Values(1, 2, 3)),
                         [](const auto& test) {
                           return std::to_string(std::get<0>(test.param)) +
                                  "WorkersAnd" +
                                  std::to_string(std::get<1>(test.param)) +
                                  "Servers";
                         });

TEST(Rounds, PushThenPullGivesWhatPushPullGives) {
  for (const ReplyMode reply : kReplyModes) {
    ClusterConfig config = Small(2, 2);
    config.compression = TwoBit(reply, {});
    Verify(config, {.separate_pull = true});
  }
  ClusterConfig dense = Small(3, 2);
  Verify(dense, {.separate_pull = true});
  dense.optimizer = OnServer();
  Verify(dense, {.separate_pull = true});
}

TEST(Rounds, DoNotDependOnThreadsPrioritiesOrChunks) {
  for (const int num_threads : {0, 1, 3}) {
    for (const size_t chunk_elems : {size_t{1}, size_t{64}, size_t{8192}}) {
      ClusterConfig config = Small(3, 2);
      // Threads hand over what is not small (kvstore/ps/wire/small_jobs.h).
      if (chunk_elems > 64) config.tensors.push_back({"long", 40000});
      config.compression = TwoBit(ReplyMode::kSum, {});
      config.num_threads = num_threads;
      config.chunk_elems = chunk_elems;
      Verify(config, {.reversed = num_threads == 3});
    }
  }
}

TEST(Rounds, BigTensorsAreSplitOverServersAndChunks) {
  ClusterConfig config = Small(2, 3);
  config.tensors = {{"split", 1000003}, {"small", 17}};
  config.chunk_elems = 65536;
  for (const ReplyMode reply : kReplyModes) {
    config.compression = TwoBit(reply, {});
    Verify(config);
  }
  config.compression = {};
  Verify(config);
}

TEST(Rounds, SmallTensorsGoDenseBelowMinBytes) {
  ClusterConfig config = Small(2, 2);
  config.compression = TwoBit(ReplyMode::kSum, Fixed(kThreshold));
  config.compression.min_bytes = 4 * 64;  // "more" and "last" are compressed
  Verify(config);
}

TEST(Rounds, TheBatchUnitDividesTheThreshold) {
  ClusterConfig config = Small(2, 1);
  config.compression =
      TwoBit(ReplyMode::kSum, {ThresholdSpec::Kind::kBatch, 0.5f});
  config.compression.batch_size = 64;
  Verify(config);
}

TEST(Rounds, AreExactOverANetworkThatHarmsMessages) {
  for (const char* transport : {"inproc", "tcp"}) {
    ClusterConfig config = Small(2, 1);
    config.transport = transport;
    config.fault = "drop=0.01,duplicate=0.01,reorder=0.01,flip=0.01,seed=9";
    config.resends = true;
    config.tensors.push_back({"long", 100000});
    config.chunk_elems = 1024;  // enough messages for each kind of harm
    Verify(config);
    config.compression = TwoBit(ReplyMode::kSum, Fixed(kThreshold));
    Verify(config);
  }
}

class RoundsOver : public ::testing::TestWithParam<const char*> {};

TEST_P(RoundsOver, AreTheSameBits) {
  const std::string transport = GetParam();
  if (absl::StrContains(DescribeTransports(), transport + ": not in")) {
    GTEST_SKIP() << transport << " is not in this build";
  }
  for (const ReplyMode reply : kReplyModes) {
    ClusterConfig config = Small(2, 2);
    config.transport = transport;
    config.tensors.push_back({"long", 100000});  // beyond eager messages
    config.chunk_elems = 65536;
    config.compression = TwoBit(reply, {});
    Verify(config);
    config.compression = {};
    Verify(config);
  }
}

INSTANTIATE_TEST_SUITE_P(Networks, RoundsOver,
                         ::testing::Values("tcp", "ucx", "ofi"),
                         [](const auto& param) { return param.param; });

// A key for which a worker is missing, with more bytes than the window of a
// connection, in front of others on the one server.
TEST(Rounds, ASlowKeyHoldsUpNoOtherOnItsServer) {
  for (const char* type : {"none", "2bit"}) {
    ClusterConfig config = testing::Job(2, 1);
    config.tensors = {{"slow", size_t{1} << 23}, {"a", 33}, {"b", 100000}};
    config.chunk_elems = size_t{1} << 18;
    config.compression.type = type;
    config.has_values = false;
    Cluster cluster(config);
    cluster.Run([&](KVStore& store) {
      std::vector<Buffer> memory;
      for (const TensorSpec& tensor : config.tensors) {
        memory.emplace_back(4 * tensor.num_elems);
      }
      const auto start = [&](Key key) {
        const Bytes view = memory[key].view();
        return store.PushPull(key, view, view, key == 0 ? 10 : 0);
      };
      const bool is_late = store.group().rank() == 1;
      Ticket slow;
      if (!is_late) slow = start(0);
      for (int step = 0; step < 20; ++step) {
        const Ticket a = start(1);
        const Ticket b = start(2);
        ASSERT_THAT(a.Wait(Soon()), IsOk());
        ASSERT_THAT(b.Wait(Soon()), IsOk());
      }
      EXPECT_EQ(slow.is_done(), is_late);  // one that has no operation is done
      ASSERT_THAT(store.group().Gather("others", "").status(), IsOk());
      if (is_late) slow = start(0);
      EXPECT_THAT(slow.Wait(Soon()), IsOk());
    });
  }
}

}  // namespace
}  // namespace telegrad
