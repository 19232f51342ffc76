// That `pushpull --check` agrees with what a store does, whatever the codec and
// the reply, and finds a wrong element.
#include "perf/network/push_pull_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "perf/network/patterns.h"
#include "tests/kvstore/cluster.h"

namespace telegrad::perf {
namespace {

using absl::StatusCode;
using ::telegrad::testing::Cluster;
using ::telegrad::testing::ClusterConfig;
using ::telegrad::testing::IsOk;
using ::telegrad::testing::Soon;
using ::telegrad::testing::StatusIs;

constexpr int kWorkers = 3;

// The second lies on both servers, in several chunks.
ClusterConfig ConfigOf(const CompressionConfig& compression) {
  ClusterConfig config;
  config.workers = kWorkers;
  config.servers = 2;
  config.tensors = {{"t0", 1000}, {"t1", 70001}, {"t2", 1}};
  config.chunk_elems = 16384;
  config.has_values = false;
  config.compression = compression;
  return config;
}

PushPullJob JobOf(const ClusterConfig& config) {
  return {.tensors = config.tensors,
          .compression = config.compression,
          .chunk_elems = config.chunk_elems,
          .num_gradients = config.workers,
          .num_servers = config.servers,
          .first = 0,
          .count = config.tensors.size()};
}

size_t NumElems(const ClusterConfig& config) {
  size_t sum = 0;
  for (const TensorSpec& tensor : config.tensors) sum += tensor.num_elems;
  return sum;
}

// What a worker gets in that round, all tensors one behind the other.
std::vector<float> PushPull(const ClusterConfig& config, KVStore& store,
                            int64_t round) {
  std::vector<float> values(NumElems(config));
  FillGradient(store.group().rank(), ShiftAt(round), values.size(),
               values.data());
  size_t begin = 0;
  for (size_t key = 0; key < config.tensors.size(); ++key) {
    const size_t n = config.tensors[key].num_elems;
    const Bytes view(values.data() + begin, 4 * n);
    EXPECT_THAT(
        store.PushPull(static_cast<Key>(key), view, view, 0).Wait(Soon()),
        IsOk());
    begin += n;
  }
  return values;
}

void RunAndCheck(
    const ClusterConfig& config, int rounds,
    const Cluster::Body& after = [](KVStore&) {}) {
  Cluster cluster(config);
  cluster.Run([&](KVStore& store) {
    absl::StatusOr<PushPullCheck> check = PushPullCheck::Make(JobOf(config));
    ASSERT_THAT(check, IsOk());
    for (int round = 0; round < rounds; ++round) {
      const std::vector<float> got = PushPull(config, store, round);
      EXPECT_THAT(check->Verify(store.group().rank(), got.data()), IsOk())
          << config.compression.type << ", round " << round;
    }
    after(store);
  });
}

class PushPullCheckOf : public ::testing::TestWithParam<const Codec*> {};

TEST_P(PushPullCheckOf, AgreesWithAStoreInAllReplyModes) {
  for (const ReplyMode reply :
       {ReplyMode::kAuto, ReplyMode::kReencode, ReplyMode::kDense}) {
    SCOPED_TRACE(ToString(reply));
    RunAndCheck(ConfigOf({.type = GetParam()->traits().name, .reply = reply}),
                6);
  }
}

INSTANTIATE_TEST_SUITE_P(Registry, PushPullCheckOf,
                         ::testing::ValuesIn(AllCodecs()),
                         [](const auto& codec) {
                           return "Codec" + codec.param->traits().name;
                         });

TEST(PushPullCheck, AgreesWithFixedThresholdsAndPackings) {
  RunAndCheck(ConfigOf({.type = "2bit:0.75"}), 4);
  RunAndCheck(ConfigOf({.type = "2bit",
                        .threshold = {ThresholdSpec::Kind::kAbsolute, 3},
                        .packing = PackingMode::kRadix}),
              4);
  RunAndCheck(ConfigOf({.type = "fp16:residual=1"}), 4);
}

// What is held back goes along when the guard gives up on a codec.
TEST(PushPullCheck, AgreesWhenChunksGoDenseInstead) {
  ClusterConfig config = ConfigOf({.type = "2bit:0.001"});
  config.tensors = {{"t0", 1000}};
  RunAndCheck(config, 80, [](KVStore& store) {
    EXPECT_TRUE(store.codecs().Report()[0].gave_up);
  });
}

TEST(PushPullCheck, AgreesWhenTheGuardHasNoSay) {
  ClusterConfig config = ConfigOf({.type = "2bit:0.001", .has_guard = false});
  config.tensors = {{"t0", 1000}};
  RunAndCheck(config, 80, [](KVStore& store) {
    EXPECT_FALSE(store.codecs().Report()[0].is_dense);
  });
}

// The first round's expectation, changed at one place.
void ExpectFound(const CompressionConfig& compression) {
  ClusterConfig config = ConfigOf(compression);
  config.workers = 1;  // what it gets of itself is known
  std::vector<float> sums;
  Cluster cluster(config);
  cluster.Run([&](KVStore& store) { sums = PushPull(config, store, 0); });
  ASSERT_EQ(sums.size(), NumElems(config));
  const size_t before = config.tensors[0].num_elems;
  for (const size_t wrong : {size_t{0}, size_t{33333}, size_t{70000}}) {
    const float right = sums[before + wrong];
    sums[before + wrong] = right + 1;
    absl::StatusOr<PushPullCheck> check = PushPullCheck::Make(JobOf(config));
    ASSERT_THAT(check, IsOk());
    EXPECT_THAT(
        check->Verify(2, sums.data()),
        StatusIs(StatusCode::kDataLoss,
                 absl::StrCat("check: worker 2: key 1, element ", wrong,
                              " of 70001 is ", right + 1, ", not ", right)));
    sums[before + wrong] = right;
  }
}

TEST(PushPullCheck, NamesTheFirstWrongElement) {
  ExpectFound({.type = "none"});
  ExpectFound({.type = "2bit"});
  ExpectFound({.type = "topk:0.01", .reply = ReplyMode::kReencode});
}

TEST(PushPullCheck, OneWrongWorkerEndsAll) {
  const auto all = [](std::vector<std::string> verdicts) {
    return [verdicts](const std::string& name, absl::string_view) {
      EXPECT_EQ(name, "checked3");
      return absl::StatusOr<std::vector<std::string>>(verdicts);
    };
  };
  EXPECT_THAT(VerdictOfAll(absl::OkStatus(), 3, all({"", ""})), IsOk());
  EXPECT_THAT(VerdictOfAll(absl::OkStatus(), 3, all({"", "worker 1: wrong"})),
              StatusIs(StatusCode::kDataLoss, "worker 1: wrong"));
  EXPECT_THAT(VerdictOfAll(absl::DataLossError("mine"), 3, all({"mine", "w"})),
              StatusIs(StatusCode::kDataLoss, "mine"));
}

}  // namespace
}  // namespace telegrad::perf
