// --gc-packing auto, in a whole cluster and as a function of numbers.
#include "kvstore/tuning/packing.h"

#include "kvstore/store_link.h"
#include "tests/kvstore/cluster.h"
#include "tests/kvstore/oracle.h"

namespace telegrad {
namespace {

using testing::Cluster;
using testing::ClusterConfig;
using testing::GradOf;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::Soon;
using testing::StatusIs;

constexpr int kWorkers = 3;
constexpr size_t kElems = 1600;
constexpr int kSteps = 4;

ClusterConfig JobOf(PackingMode mode, const std::string& type = "2bit") {
  ClusterConfig config;
  config.workers = kWorkers;
  config.servers = 2;
  config.tensors = {{"a", kElems}, {"b", kElems}};
  config.chunk_elems = 320;
  config.compression.type = type;
  config.compression.threshold = {ThresholdSpec::Kind::kAbsolute, 0.0078125f};
  config.compression.packing = mode;
  config.has_values = false;
  return config;
}

std::vector<float> PushPull(KVStore& store, Key key, int step) {
  std::vector<float> grad(kElems);
  for (size_t i = 0; i < kElems; ++i)
    grad[i] = GradOf(store.group().rank(), step, i);
  const Bytes view(grad.data(), 4 * grad.size());
  EXPECT_THAT(store.PushPull(key, view, view, 0).Wait(Soon()), IsOk());
  return grad;
}

struct Round {
  std::vector<std::vector<float>> sums = {};
  StoreStats traffic = {};
  std::vector<TensorReport> reports = {};
};

// Of worker 0; `settle` runs before the first push.
Round RunSteps(const ClusterConfig& config,
               const std::function<void(KVStore&)>& settle) {
  Round seen;
  Cluster cluster(config);
  cluster.Run([&](KVStore& store) {
    settle(store);
    std::vector<std::vector<float>> sums;
    for (int step = 0; step < kSteps; ++step) {
      for (Key key : {0, 1}) sums.push_back(PushPull(store, key, step));
    }
    EXPECT_THAT(store.codecs().SetPacking(PackingMode::kPlain),
                StatusIs(absl::StatusCode::kFailedPrecondition, ""));
    if (store.group().rank() == 0) {
      seen = {std::move(sums), store.stats(), store.codecs().Report()};
    }
  });
  EXPECT_THAT(cluster.ServerStatus(0), IsOk());
  EXPECT_THAT(cluster.ServerStatus(1), IsOk());
  return seen;
}

TEST(Packing, CanBeSetAfterInitAndChangesNothingButBytes) {
  const auto nothing = [](KVStore&) {};
  const Round plain = RunSteps(JobOf(PackingMode::kPlain), nothing);
  const Round radix = RunSteps(JobOf(PackingMode::kRadix), nothing);
  EXPECT_LT(radix.traffic.push_wire_bytes, plain.traffic.push_wire_bytes);
  for (const ReplyMode reply : {ReplyMode::kSum, ReplyMode::kReencode}) {
    std::vector<std::vector<float>> sums;
    for (const PackingMode mode : {PackingMode::kPlain, PackingMode::kRadix}) {
      ClusterConfig config = JobOf(PackingMode::kAuto);
      config.compression.reply = reply;
      const Round seen = RunSteps(config, [&](KVStore& store) {
        EXPECT_EQ(store.codecs().packing(), PackingMode::kAuto);
        EXPECT_THAT(store.codecs().SetPacking(PackingMode::kAuto),
                    StatusIs(absl::StatusCode::kFailedPrecondition, ""));
        EXPECT_THAT(store.codecs().SetPacking(mode), IsOk());
        EXPECT_EQ(store.codecs().packing(), mode);
      });
      const Round& like = mode == PackingMode::kPlain ? plain : radix;
      EXPECT_EQ(seen.traffic.push_wire_bytes, like.traffic.push_wire_bytes);
      EXPECT_EQ(seen.reports[0].push_bytes, like.reports[0].push_bytes);
      EXPECT_EQ(seen.reports[0].packing, ToString(mode));
      EXPECT_EQ(seen.reports[0].reason, "type 2bit");
      if (reply == ReplyMode::kSum) {
        EXPECT_EQ(seen.sums, plain.sums);
      }
      if (sums.empty()) sums = seen.sums;
      EXPECT_EQ(seen.sums, sums);
    }
  }
}

// Codecs without a choice that go first leave it to those with one.
TEST(Packing, IsKeptForACodecThatComesLater) {
  ClusterConfig config = JobOf(PackingMode::kAuto, "fp16");
  config.compression.alternatives = {"2bit"};
  Cluster cluster(config);
  cluster.Run([&](KVStore& store) {
    EXPECT_EQ(store.codecs().packing(), PackingMode::kAuto);
    EXPECT_THAT(store.codecs().SetPacking(PackingMode::kRadix), IsOk());
    for (int step = 0; step < 2 * kSteps; ++step) {
      for (Key key : {0, 1}) {
        if (step == kSteps) {
          EXPECT_THAT(store.codecs().SetCodec(key, 1), IsOk());
        }
        PushPull(store, key, step);
      }
    }
    EXPECT_EQ(store.codecs().Report()[0].codec, "2bit");
    EXPECT_EQ(store.codecs().Report()[0].packing, "radix");
  });
  EXPECT_THAT(cluster.ServerStatus(0), IsOk());
  EXPECT_THAT(cluster.ServerStatus(1), IsOk());
}

TEST(Packing, IsPlainWhereNobodyDecides) {
  const Round plain = RunSteps(JobOf(PackingMode::kPlain), [](KVStore&) {});
  const Round open = RunSteps(JobOf(PackingMode::kAuto), [](KVStore& store) {
    EXPECT_EQ(store.codecs().packing(), PackingMode::kAuto);
  });
  EXPECT_EQ(open.traffic.push_wire_bytes, plain.traffic.push_wire_bytes);
  EXPECT_EQ(open.sums, plain.sums);
}

TEST(Packing, IsNotOpenWhereNoCodecHasAChoice) {
  for (const char* type : {"int8", "none", "2bit:packing=1"}) {
    RunSteps(JobOf(PackingMode::kAuto, type), [&](KVStore& store) {
      EXPECT_EQ(store.codecs().packing(), PackingMode::kPlain) << type;
    });
  }
}

// The job ends rather than that codes are read as what they are not.
TEST(Packing, OfWorkersThatDifferEndsTheJob) {
  ClusterConfig config = JobOf(PackingMode::kAuto);
  config.workers = 2;
  config.servers = 1;
  Cluster cluster(config);
  cluster.Run([&](KVStore& store) {
    EXPECT_THAT(store.codecs().SetPacking(store.group().rank() == 0
                                              ? PackingMode::kPlain
                                              : PackingMode::kRadix),
                IsOk());
    std::vector<float> grad(kElems);
    const Bytes view(grad.data(), 4 * grad.size());
    EXPECT_FALSE(store.PushPull(0, view, view, 0).Wait(Soon()).ok());
  });
  EXPECT_THAT(std::string(cluster.ServerStatus(0).message()),
              HasSubstr("packing"));
}

// Codes at these elements/s by one core.
CodecFigures FiguresAt(double encode, bool is_radix) {
  CodecFigures figures{.name = "2bit",
                       .is_summable = true,
                       .reply = Reply::kSum,
                       .push_bits = is_radix ? 1.6 : 2.0,
                       .reply_bits = {{64, is_radix ? 3.0 : 4.0}}};
  figures.encode.value = encode;
  for (Figure* speed : {&figures.decode, &figures.decode_add, &figures.sum}) {
    speed->value = 4 * encode;
  }
  return figures;
}

absl::StatusOr<CodecFigures> SlowerRadix(absl::string_view text,
                                         const CompressionConfig& compression,
                                         const CalibrationOptions&) {
  EXPECT_EQ(text, "2bit");
  const bool is_radix = compression.packing == PackingMode::kRadix;
  return FiguresAt(is_radix ? 0.7e9 : 1e9, is_radix);
}

PackingMode Decide(double bytes_per_s, double radix_encode) {
  const std::vector<int64_t> elems = {int64_t{1} << 24, int64_t{1} << 20};
  const ClusterCost cluster{
      .workers = 2, .servers = 2, .bytes_per_s = bytes_per_s};
  const auto decision =
      DecidePacking(elems, cluster, size_t{1} << 19, FiguresAt(1e9, false),
                    FiguresAt(radix_encode, true));
  EXPECT_THAT(decision, IsOk());
  EXPECT_THAT(decision->reason, HasSubstr("exchange of"));
  return decision->mode;
}

TEST(Packing, IsRadixWhereTheWireIsTheLimitAndNotTheCore) {
  EXPECT_EQ(Decide(125e6, 0.7e9), PackingMode::kRadix);
  EXPECT_EQ(Decide(12.5e9, 0.7e9), PackingMode::kPlain);
  EXPECT_EQ(Decide(125e6, 0.05e9), PackingMode::kPlain);  // a slow core
  EXPECT_EQ(Decide(12.5e9, 1.3e9), PackingMode::kRadix);  // costs nothing
}

// Each worker believes something else; worker 0's link and settings count.
TEST(Packing, IsSettledAlikeByAllWorkers) {
  for (const double rate : {1e6, 1e12}) {
    const PackingMode expected =
        rate < 1e9 ? PackingMode::kRadix : PackingMode::kPlain;
    const Round seen = RunSteps(JobOf(PackingMode::kAuto), [&](KVStore& store) {
      LinkFigures link{.name = "link"};
      link.send.value = link.receive.value =
          store.group().rank() == 0 ? rate : 1e18 / rate;
      const auto decision =
          SettlePacking(store, {.link = link,
                                .cores = 1 + store.group().rank(),
                                .chunk_elems = 320,
                                .measure_codec = SlowerRadix});
      ASSERT_THAT(decision, IsOk());
      ASSERT_TRUE(decision->has_value());
      EXPECT_EQ((*decision)->mode, expected);
      EXPECT_THAT((*decision)->reason, HasSubstr("link"));
      EXPECT_EQ(store.codecs().packing(), expected);
    });
    EXPECT_EQ(seen.reports[1].packing, ToString(expected));
  }
}

TEST(Packing, IsLeftAloneWhereItIsSettled) {
  RunSteps(JobOf(PackingMode::kRadix), [](KVStore& store) {
    const auto decision = SettlePacking(store, {.measure_codec = SlowerRadix});
    ASSERT_THAT(decision, IsOk());
    EXPECT_FALSE(decision->has_value());
    EXPECT_EQ(store.codecs().packing(), PackingMode::kRadix);
  });
}

// With what is measured here, whatever that is.
TEST(Packing, IsSettledByRealFigures) {
  RunSteps(JobOf(PackingMode::kAuto), [](KVStore& store) {
    const auto link = store.link()->Measure(std::chrono::milliseconds(20));
    ASSERT_THAT(link, IsOk());
    EXPECT_EQ(store.link()->load(), 1);  // all servers are here
    const auto decision = SettlePacking(store, {.link = *link});
    ASSERT_THAT(decision, IsOk());
    EXPECT_TRUE(decision->has_value());
    EXPECT_NE(store.codecs().packing(), PackingMode::kAuto);
  });
}

}  // namespace
}  // namespace telegrad
