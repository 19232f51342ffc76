#include "kvstore/auto_compression.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/kvstore/cluster.h"
#include "tests/testing/status_matchers.h"

namespace telegrad {
namespace {

using testing::Cluster;
using testing::ClusterConfig;
using ::testing::HasSubstr;
using testing::IsOk;

constexpr double kGigabit = 1e9 / 8;

CodecFigures TwoBit(double elems_per_s) {
  const Figure speed = {
      .value = elems_per_s, .spread = 0.1, .confidence = Confidence::kMeasured};
  return {.name = "2bit",
          .is_summable = true,
          .reply = Reply::kSum,
          .push_bits = 2,
          .reply_bits = {{3, 3}},
          .encode = speed,
          .decode = speed,
          .decode_add = speed,
          .sum = speed,
          .call_s = {.value = 1e-6, .confidence = Confidence::kMeasured}};
}

// Dense exchanges of 8 Mi elements over a link, as the model sees them.
constexpr std::array<int64_t, 2> kElems = {int64_t{8} << 20, 100};
const std::vector<bool> kMay = {true, false};
const ClusterCost kCluster = {.workers = 2, .servers = 2};

Observation Dense(double link_bytes_per_s, double codec_elems_per_s) {
  const double exchange = 4.0 * double(kElems[0]) / link_bytes_per_s;
  return {.median = {.step = exchange + 0.1,
                     .exchange = exchange,
                     .wait = exchange},
          .exchange_spread = 0.05,
          .codec = TwoBit(codec_elems_per_s),
          .reduce_elems_per_s = 2e9};
}

AutoDecision Decide(const Observation& seen) {
  const auto decision =
      DecideCompression(kElems, kMay, kCluster, 1 << 19, seen);
  EXPECT_THAT(decision, IsOk());
  return *decision;
}

TEST(AutoDecision, CompressesOnASlowLink) {
  const AutoDecision decision = Decide(Dense(kGigabit, 1e9));
  EXPECT_TRUE(decision.any);
  EXPECT_EQ(decision.is_compressed, (std::vector<bool>{true, false}));
  // The fit gives back what the observation was made with, up to its filling
  // of the pipeline.
  EXPECT_NEAR(decision.link_bytes_per_s / kGigabit, 1, 0.2);
  EXPECT_THAT(decision.reason, HasSubstr("compression on, 2bit for 1 of 2"));
}

TEST(AutoDecision, DoesNotOnAFastOneOrWithASlowCodec) {
  for (const Observation& seen :
       {Dense(400 * kGigabit, 1e9), Dense(kGigabit, 1e6)}) {
    const AutoDecision decision = Decide(seen);
    EXPECT_FALSE(decision.any);
    EXPECT_EQ(decision.is_compressed, (std::vector<bool>{false, false}));
    EXPECT_GE(decision.link_bytes_per_s, decision.break_even_bytes_per_s);
    EXPECT_THAT(decision.reason, HasSubstr("compression off: link"));
    EXPECT_THAT(decision.reason, HasSubstr(">= break-even"));
  }
}

TEST(AutoDecision, MoreBandwidthNeverSwitchesItOn) {
  for (const double speed : {1e7, 1e8, 1e9, 1e10}) {
    bool was_on = true;
    for (double link = 1e6; link < 1e11; link *= 1.7) {
      const bool is_on = Decide(Dense(link, speed)).any;
      EXPECT_LE(is_on, was_on) << "codec " << speed << " link " << link;
      was_on = is_on;
    }
  }
}

TEST(AutoDecision, DoesNotWhenBackwardHidesTheExchange) {
  Observation seen = Dense(kGigabit, 1e9);
  seen.median.wait = 0;
  EXPECT_FALSE(Decide(seen).any);
}

TEST(AutoDecision, DoesNotWithinTheUncertainty) {
  Observation seen = Dense(kGigabit, 1e9);
  seen.exchange_spread = 0.99;
  EXPECT_FALSE(Decide(seen).any);
}

// Runs `times` per step through two workers; returns worker 0's lines.
std::vector<std::string> Lines(
    const std::function<StepTimes(int step, bool is_compressing)>& times,
    int num_steps) {
  ClusterConfig config;
  config.tensors = {{"a", 1 << 20}};
  config.compression = {.type = "2bit", .starts_dense = true};
  config.chunk_elems = size_t{1} << 18;
  std::vector<std::string> all;
  Cluster cluster(config);
  cluster.Run([&](KVStore& store) {
    AutoCompression automatic(
        store, {.codec = "2bit", .compression = config.compression});
    EXPECT_THAT(automatic.Start(), IsOk());
    std::vector<float> grad(1 << 20, 0x1p-6f);
    for (int step = 0; step < num_steps; ++step) {
      const size_t bytes = 4 * grad.size();
      EXPECT_THAT(store
                      .PushPull(0, ConstBytes(grad.data(), bytes),
                                Bytes(grad.data(), bytes), 0)
                      .Wait(Clock::now() + std::chrono::seconds(60)),
                  IsOk());
      const auto lines =
          automatic.AfterStep(times(step, automatic.is_compressing()));
      ASSERT_THAT(lines, IsOk());
      if (store.rank() != 0) continue;
      all.insert(all.end(), lines->begin(), lines->end());
    }
  });
  return all;
}

TEST(AutoCompression, StaysWhenStepsGetFaster) {
  const std::vector<std::string> lines = Lines(
      [](int, bool on) {
        return StepTimes{.step = on ? 0.1 : 1,
                         .exchange = on ? 0.1 : 1,
                         .wait = on ? 0.1 : 1};
      },
      30);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_THAT(lines[0], HasSubstr("step 9: compression on"));
  EXPECT_THAT(lines[1], HasSubstr("compression stays"));
}

TEST(AutoCompression, IsTakenBackWhenStepsGetSlower) {
  const std::vector<std::string> lines = Lines(
      [](int, bool on) {
        return StepTimes{.step = on ? 2.0 : 1, .exchange = 1, .wait = 1};
      },
      30);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_THAT(lines[1], HasSubstr("compression off again"));
}

TEST(AutoCompression, DecidesAnewWhenTheLinkChanges) {
  const std::vector<std::string> lines = Lines(
      [](int step, bool) {
        const double s = step < 40 ? 1e-6 : 1;
        return StepTimes{.step = s, .exchange = s, .wait = s};
      },
      110);
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_THAT(lines[0], HasSubstr("compression off"));
  EXPECT_THAT(lines[1], HasSubstr("measuring anew"));
  EXPECT_THAT(lines[2], HasSubstr("compression on"));
  EXPECT_THAT(lines[3], HasSubstr("compression stays"));
}

}  // namespace
}  // namespace telegrad
