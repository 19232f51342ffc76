#include "kvstore/auto_compression.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_join.h"
#include "tests/kvstore/cluster.h"
#include "tests/kvstore/known_speeds.h"
#include "tests/testing/status_matchers.h"

namespace telegrad {
namespace {

using testing::Cluster;
using testing::ClusterConfig;
using ::testing::HasSubstr;
using testing::IsOk;

// Dense exchanges of 8 Mi elements over a link, as the model sees them.
constexpr std::array<int64_t, 2> kElems = {int64_t{8} << 20, 100};
const std::vector<std::string> kGiven = {"", "none"};
const ClusterCost kCluster = {.workers = 2, .servers = 2};

Observation DenseWith(double link_bytes_per_s,
                      std::vector<CodecFigures> codecs) {
  const double exchange = 4.0 * double(kElems[0]) / link_bytes_per_s;
  return {.median = {.step = exchange + 0.1,
                     .exchange = exchange,
                     .wait = exchange},
          .exchange_spread = 0.05,
          .codecs = std::move(codecs),
          .reduce_elems_per_s = 2e9};
}
Observation Dense(double link_bytes_per_s, double codec_elems_per_s) {
  return DenseWith(link_bytes_per_s,
                   {KnownCodec("2bit", 2, codec_elems_per_s)});
}

AutoDecision Decide(const Observation& seen, int current = kDenseCodec) {
  const auto decision =
      DecideCompression(kElems, kGiven, kCluster, 1 << 19, seen, current);
  EXPECT_THAT(decision, IsOk());
  return *decision;
}

TEST(AutoDecision, CompressesOnASlowLink) {
  const AutoDecision decision = Decide(Dense(kGigabit, 1e9));
  EXPECT_EQ(decision.codec, 0);
  EXPECT_EQ(decision.candidates[0].is_compressed,
            (std::vector<bool>{true, false}));
  // The fit gives back what the observation was made with, up to its filling
  // of the pipeline.
  EXPECT_NEAR(decision.link_bytes_per_s / kGigabit, 1, 0.2);
  EXPECT_THAT(decision.reason, HasSubstr("compression on, 2bit for 1 of 2"));
}

// What a rule compresses is not on the link: it is no faster for that.
TEST(AutoDecision, FindsTheLinkBesideWhatRulesCompress) {
  const std::vector<int64_t> elems = {kElems[0], kElems[0]};
  const std::vector<std::string> given = {"", "rule"};
  Observation seen = Dense(kGigabit, 1e9);
  seen.given_codecs = {KnownCodec("rule", 2, 1e10)};
  seen.median.exchange *= 1 + 2.0 / 32;
  const auto decision =
      DecideCompression(elems, given, kCluster, 1 << 19, seen);
  ASSERT_THAT(decision, IsOk());
  EXPECT_NEAR(decision->link_bytes_per_s / kGigabit, 1, 0.2);
  EXPECT_EQ(decision->candidates[0].is_compressed,
            (std::vector<bool>{true, false}));
}

TEST(AutoDecision, DoesNotOnAFastOneOrWithASlowCodec) {
  for (const Observation& seen :
       {Dense(400 * kGigabit, 1e9), Dense(kGigabit, 1e6)}) {
    const AutoDecision decision = Decide(seen);
    EXPECT_EQ(decision.codec, kDenseCodec);
    EXPECT_GE(decision.link_bytes_per_s,
              decision.candidates[0].break_even_bytes_per_s);
    EXPECT_THAT(decision.reason, HasSubstr("compression off: link"));
    EXPECT_THAT(decision.reason, HasSubstr(" > break-even"));
    EXPECT_THAT(decision.reason, HasSubstr("ms with 2bit"));
  }
}

TEST(AutoDecision, MoreBandwidthNeverSwitchesItOn) {
  for (const double speed : {1e7, 1e8, 1e9, 1e10}) {
    bool was_on = true;
    for (double link = 1e6; link < 1e11; link *= 1.7) {
      const bool is_on = Decide(Dense(link, speed)).any();
      EXPECT_LE(is_on, was_on) << "codec " << speed << " link " << link;
      was_on = is_on;
    }
  }
}

TEST(AutoDecision, DoesNotWhenBackwardHidesTheExchange) {
  Observation seen = Dense(kGigabit, 1e9);
  seen.median.wait = 0;
  EXPECT_FALSE(Decide(seen).any());
}

TEST(AutoDecision, DoesNotWithinTheUncertainty) {
  Observation seen = Dense(kGigabit, 1e9);
  seen.exchange_spread = 0.99;
  EXPECT_FALSE(Decide(seen).any());
}

// Codecs in the order of preference: half the bytes, a sixteenth.
std::vector<CodecFigures> HalfAndSixteenth() {
  return {KnownCodec("half", 16, 1e10), KnownCodec("sixteenth", 2, 1e10)};
}

TEST(AutoDecision, TakesTheDensestAllowedOnASlowLink) {
  const AutoDecision decision = Decide(DenseWith(kGigabit, HalfAndSixteenth()));
  EXPECT_EQ(decision.codec, 1);
  EXPECT_LT(decision.candidates[1].exchange_s,
            decision.candidates[0].exchange_s);
  EXPECT_THAT(decision.reason,
              HasSubstr("compression on, sixteenth for 1 of 2"));
  EXPECT_THAT(decision.reason, HasSubstr("ms with half (break-even "));
  EXPECT_THAT(decision.reason, HasSubstr("ms with sixteenth"));
}

TEST(AutoDecision, TakesNoneOfTheListOnAFastLink) {
  const AutoDecision decision =
      Decide(DenseWith(4000 * kGigabit, HalfAndSixteenth()));
  EXPECT_EQ(decision.codec, kDenseCodec);
  for (const CodecCandidate& each : decision.candidates) {
    EXPECT_FALSE(each.is_worth_it) << each.name;
    EXPECT_GE(decision.link_bytes_per_s, each.break_even_bytes_per_s);
    EXPECT_THAT(decision.reason, HasSubstr("ms with " + each.name));
  }
}

TEST(AutoDecision, TakesTheFirstListedOfTwoThatAreNearlyEqual) {
  for (const double other : {1.97, 2.0, 2.03}) {
    EXPECT_EQ(Decide(DenseWith(kGigabit, {KnownCodec("first", 2, 1e10),
                                          KnownCodec("second", other, 1e10)}))
                  .codec,
              0)
        << other;
  }
}

TEST(AutoDecision, TakesTheFirstListedWhenBackwardHidesTheDifference) {
  Observation seen = DenseWith(kGigabit, HalfAndSixteenth());
  seen.median.wait = 0.4 * seen.median.exchange;
  EXPECT_EQ(Decide(seen).codec, 0);
  seen.median.wait = seen.median.exchange;
  EXPECT_EQ(Decide(seen).codec, 1);
}

TEST(AutoDecision, LeavesACodecOutThatIsTooSlow) {
  const AutoDecision decision = Decide(DenseWith(
      kGigabit, {KnownCodec("slow", 1, 1e6), KnownCodec("half", 16, 1e10)}));
  EXPECT_EQ(decision.codec, 1);
  EXPECT_FALSE(decision.candidates[0].is_worth_it);
}

TEST(AutoDecision, NeedsACodec) {
  EXPECT_FALSE(
      DecideCompression(kElems, kGiven, kCluster, 1 << 19, DenseWith(1e9, {}))
          .ok());
}

std::vector<CodecCandidate> WithSeconds(const std::vector<double>& seconds) {
  std::vector<CodecCandidate> candidates;
  for (const double each : seconds) {
    candidates.push_back({.exchange_s = each, .is_worth_it = true});
  }
  return candidates;
}

TEST(ChooseCodec, StaysUnlessAnotherSavesTwentyPercent) {
  const StepTimes dense = {.step = 10, .exchange = 10, .wait = 10};
  EXPECT_EQ(ChooseCodec(WithSeconds({1.0, 1.15}), dense, kDenseCodec), 0);
  EXPECT_EQ(ChooseCodec(WithSeconds({1.0, 1.15}), dense, 1), 1);
  EXPECT_EQ(ChooseCodec(WithSeconds({1.15, 1.0}), dense, 0), 0);
  EXPECT_EQ(ChooseCodec(WithSeconds({1.15, 1.0}), dense, kDenseCodec), 1);
  EXPECT_EQ(ChooseCodec(WithSeconds({1.25, 1.0}), dense, 0), 1);
}

TEST(ChooseCodec, LeavesTheCurrentOneThatIsNotWorthIt) {
  const StepTimes dense = {.step = 10, .exchange = 10, .wait = 10};
  std::vector<CodecCandidate> candidates = WithSeconds({1, 5});
  candidates[0].is_worth_it = false;
  EXPECT_EQ(ChooseCodec(candidates, dense, 0), 1);
  candidates[1].is_worth_it = false;
  EXPECT_EQ(ChooseCodec(candidates, dense, 0), kDenseCodec);
}

using Times = std::function<StepTimes(int step, int codec)>;

// Runs `times` per step, of the codec that is chosen, through two workers;
// returns worker 0's lines after the first, which is the same for all.
std::vector<std::string> LinesWith(const std::vector<std::string>& codecs,
                                   const Times& times, int num_steps,
                                   int cores = 1) {
  ClusterConfig config;
  config.tensors = {{"a", 1 << 20}};
  config.compression = {.type = codecs[0],
                        .alternatives = {codecs.begin() + 1, codecs.end()},
                        .starts_dense = true};
  config.chunk_elems = size_t{1} << 18;
  std::vector<std::string> all;
  Cluster cluster(config);
  cluster.Run([&](KVStore& store) {
    AutoCompression automatic(store, {.compression = config.compression,
                                      .cores = cores,
                                      .measure_codec = KnownSpeeds});
    const auto first = automatic.Start();
    ASSERT_THAT(first, IsOk());
    ASSERT_EQ(first->size(), 1u);
    EXPECT_THAT((*first)[0], HasSubstr("step 0: dense for 9 steps"));
    EXPECT_THAT((*first)[0], HasSubstr("none, " + absl::StrJoin(codecs, ", ")));
    std::vector<float> grad(1 << 20, 0x1p-6f);
    for (int step = 0; step < num_steps; ++step) {
      const size_t bytes = 4 * grad.size();
      EXPECT_THAT(store
                      .PushPull(0, ConstBytes(grad.data(), bytes),
                                Bytes(grad.data(), bytes), 0)
                      .Wait(Clock::now() + std::chrono::seconds(60)),
                  IsOk());
      const auto lines = automatic.AfterStep(times(step, automatic.codec()));
      ASSERT_THAT(lines, IsOk());
      if (store.rank() != 0) continue;
      all.insert(all.end(), lines->begin(), lines->end());
    }
  });
  return all;
}

std::vector<std::string> Lines(
    const std::function<StepTimes(int step, bool is_compressing)>& times,
    int num_steps) {
  return LinesWith(
      {"2bit"},
      [&times](int step, int codec) {
        return times(step, codec != kDenseCodec);
      },
      num_steps);
}

StepTimes Exposed(double seconds) {
  return {.step = seconds, .exchange = seconds, .wait = seconds};
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

// With --threads 0 codecs run on the transport's thread.
TEST(AutoCompression, CountsTheTransportsThreadWhereThereIsNoOther) {
  const std::vector<std::string> lines = LinesWith(
      {"2bit"}, [](int, int codec) { return Exposed(codec == 0 ? 0.1 : 1); },
      10, /*cores=*/0);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines[0], HasSubstr("compression on, 2bit"));
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
      [](int step, bool on) {
        return Exposed(step < 40 ? 1e-6 : on ? 0.1 : 1);
      },
      110);
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_THAT(lines[0], HasSubstr("compression off"));
  EXPECT_THAT(lines[1], HasSubstr("measuring anew"));
  EXPECT_THAT(lines[2], HasSubstr("revised from none: compression on"));
  EXPECT_THAT(lines[3], HasSubstr("compression stays"));
}

constexpr int kFp16 = 0;
constexpr int kTwoBit = 1;

// Dense exchanges of 1 s, behind which 0.6 s of backward hide, take fp16, which
// is listed first; of 10 s, 2bit.
TEST(AutoCompression, ReplacesACodecByAnotherWhenTheLinkChanges) {
  const std::vector<std::string> lines = LinesWith(
      {"fp16", "2bit"},
      [](int step, int codec) {
        const double dense = step < 60 ? 1 : 10;
        const double exchange = codec == kFp16     ? 0.55 * dense
                                : codec == kTwoBit ? 0.1 * dense
                                                   : dense;
        return StepTimes{.step = 1 + std::max(0.6, exchange),
                         .exchange = exchange,
                         .wait = std::max(0.0, exchange - 0.6)};
      },
      200);
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_THAT(lines[0], HasSubstr("step 9: compression on, fp16"));
  EXPECT_THAT(lines[1], HasSubstr("compression stays"));
  EXPECT_THAT(lines[2], HasSubstr("measuring anew"));
  EXPECT_THAT(lines[3], HasSubstr("revised from fp16: compression on, 2bit"));
  EXPECT_THAT(lines[4], HasSubstr("compression stays"));
}

TEST(AutoCompression, TriesTheNextWhenTheFirstIsNotAsPredicted) {
  const std::vector<std::string> lines = LinesWith(
      {"fp16", "2bit"},
      [](int, int codec) {
        return Exposed(codec == kTwoBit ? 2 : codec == kFp16 ? 0.5 : 1);
      },
      40);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_THAT(lines[0], HasSubstr("compression on, 2bit"));
  EXPECT_THAT(lines[1], HasSubstr("compression by fp16 instead: steps took"));
  EXPECT_THAT(lines[2], HasSubstr("compression stays"));
}

TEST(AutoCompression, TriesAllAndEndsWithNone) {
  const std::vector<std::string> lines = LinesWith(
      {"fp16", "2bit"},
      [](int, int codec) { return Exposed(codec == kDenseCodec ? 1 : 2); },
      100);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_THAT(lines[1], HasSubstr("compression by fp16 instead"));
  EXPECT_THAT(lines[2], HasSubstr("compression off again"));
}

TEST(AutoCompression, GoesBackToTheBetterOfTwoThatWereMeasured) {
  const std::vector<std::string> lines = LinesWith(
      {"fp16", "2bit"},
      [](int, int codec) {
        return Exposed(codec == kTwoBit ? 0.7 : codec == kFp16 ? 0.9 : 1);
      },
      100);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_THAT(lines[1], HasSubstr("compression by fp16 instead"));
  EXPECT_THAT(lines[2], HasSubstr("compression by 2bit instead"));
  EXPECT_THAT(lines[2], HasSubstr("700 ms measured with 2bit"));
}

TEST(AutoCompression, SaysNothingWhenTheLinkChangesLittle) {
  const std::vector<std::string> lines = LinesWith(
      {"fp16", "2bit"},
      [](int step, int codec) {
        const double noise = step % 100 < 50 ? 1 : 1.3;
        return Exposed(noise * (codec == kTwoBit ? 0.08 : 1));
      },
      300);
  EXPECT_EQ(lines.size(), 2u);
}

}  // namespace
}  // namespace telegrad
