#include "kvstore/tuning/auto_compression.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/kvstore/cluster.h"
#include "tests/kvstore/tuning/known_speeds.h"
#include "tests/testing/status_matchers.h"

namespace telegrad {
namespace {

using ::testing::AllOf;
using testing::Cluster;
using testing::ClusterConfig;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::IsOk;
using ::testing::Not;
using testing::StatusIs;

// Of a step with the codec that is in use.
using Times = std::function<StepTimes(int step, int codec)>;

// What worker 0 of two saw and used.
struct Seen {
  std::vector<std::string> decisions = {};  // "12: off: ...", after the first
  std::vector<int> codecs = {};             // by step
};

AutoOptions OptionsOf(const ClusterConfig& config,
                      const std::vector<std::string>& codecs) {
  return {.speeds = {.compression = config.compression,
                     .codecs = codecs,
                     .num_elems = 1 << 16,
                     .cpus = 8,
                     .measure_codec = KnownSpeeds},
          .processes = 4,
          .chunk_elems = config.chunk_elems};
}

Seen RunWith(const std::vector<std::string>& codecs, const Times& times,
             int num_steps, const std::string& rules = "",
             std::vector<TensorSpec> tensors = {{"a", 1 << 20},
                                                {"b", 1 << 10}}) {
  ClusterConfig config;
  config.tensors = std::move(tensors);
  config.compression = {.type = codecs[0],
                        .rules = rules,
                        .alternatives = {codecs.begin() + 1, codecs.end()},
                        .starts_dense = true};
  config.chunk_elems = size_t{1} << 18;
  Seen seen;
  Cluster cluster(config);
  cluster.Run([&](KVStore& store) {
    AutoCompression automatic(store, OptionsOf(config, codecs));
    const auto first = automatic.Start();
    ASSERT_THAT(first, IsOk());
    ASSERT_EQ(first->size(), 1u);
    EXPECT_EQ(first->front().choice, "off for 9 steps");
    for (int step = 0; step < num_steps; ++step) {
      const int codec = automatic.codec();
      const auto decisions = automatic.AfterStep(times(step, codec));
      ASSERT_THAT(decisions, IsOk());
      if (store.group().rank() != 0) continue;
      seen.codecs.push_back(codec);
      for (const Decision& each : *decisions) {
        EXPECT_EQ(each.what, Decision::Kind::kCodec);
        seen.decisions.push_back(
            absl::StrCat(automatic.step(), ": ", each.choice, ": ", each.why));
      }
    }
  });
  return seen;
}

StepTimes Exposed(double seconds) {
  return {.step = seconds, .exchange = seconds, .wait = seconds};
}

TEST(AutoCompression, KeepsACodecThatMakesStepsFaster) {
  const Seen seen = RunWith(
      {"2bit"}, [](int, int codec) { return Exposed(codec == 0 ? 0.1 : 1); },
      30);
  EXPECT_THAT(seen.decisions,
              ElementsAre(AllOf(HasSubstr("19: 2bit for "),
                                HasSubstr("with none 1e+03 ms measured"),
                                HasSubstr("with 2bit 100 ms measured"))));
  EXPECT_EQ(seen.codecs[8], kDenseCodec);  // measured first
  EXPECT_EQ(seen.codecs.back(), 0);
}

TEST(AutoCompression, TakesBackWhatMakesStepsSlower) {
  const Seen seen = RunWith(
      {"2bit"},
      [](int, int codec) {
        return StepTimes{
            .step = codec == 0 ? 2.0 : 1, .exchange = 1, .wait = 1};
      },
      30);
  EXPECT_THAT(seen.decisions,
              ElementsAre(AllOf(HasSubstr("19: off: "),
                                HasSubstr("2e+03 ms measured"))));
  EXPECT_THAT(seen.codecs, Contains(0));  // it was tried
  EXPECT_EQ(seen.codecs.back(), kDenseCodec);
}

// As small models on one machine: the exchange is time in which backward and
// the other processes have the cores, not the link.
TEST(AutoCompression, TriesNothingWhereStepsDoNotWait) {
  const Seen seen = RunWith(
      {"2bit"},
      [](int, int) {
        return StepTimes{.step = 0.0033, .exchange = 0.002, .wait = 0.00002};
      },
      30);
  EXPECT_THAT(seen.decisions, ElementsAre(HasSubstr("9: off: ")));
  EXPECT_THAT(seen.codecs, Each(kDenseCodec));
}

// A codec that takes the cores a thousand times as long as the link would.
TEST(AutoCompression, DoesNotTryWhatThePlannerPredictsToBeSlower) {
  t_codec_speed = 1e9;
  const Seen seen = RunWith(
      {"2bit"}, [](int, int) { return Exposed(1e-5); }, 30);
  EXPECT_THAT(
      seen.decisions,
      ElementsAre(AllOf(HasSubstr("9: off: "),
                        HasSubstr("that is not what takes time"),
                        HasSubstr("with 2bit"), HasSubstr("predicted"))));
  EXPECT_THAT(seen.codecs, Each(kDenseCodec));
}

// What a message costs is assumed: 30 ms for these tensors, which take 20.
TEST(AutoCompression, TriesWhatOnlyAssumedMessagesMakeSlow) {
  t_codec_speed = 1e12;
  std::vector<TensorSpec> tensors;
  for (int i = 0; i < 200; ++i) {
    tensors.push_back({absl::StrCat("t", i), 1 << 12});
  }
  const Seen seen = RunWith(
      {"2bit"},
      [](int, int codec) { return Exposed(codec == 0 ? 5e-3 : 2e-2); }, 30, "",
      std::move(tensors));
  EXPECT_THAT(seen.decisions,
              ElementsAre(AllOf(HasSubstr("19: 2bit for "),
                                HasSubstr("that is not what takes time"))));
}

TEST(AutoCompression, TriesAllThatMayBeFasterAndKeepsTheFastest) {
  constexpr int kFp16 = 0;
  constexpr int kTwoBit = 1;
  const auto run = [&](double fp16, double two_bit) {
    return RunWith(
        {"fp16", "2bit"},
        [&](int, int codec) {
          return Exposed(codec == kTwoBit ? two_bit
                         : codec == kFp16 ? fp16
                                          : 1);
        },
        40);
  };
  // The prediction for 2bit is the best, so it comes first; steps say else.
  const Seen fp16 = run(0.5, 2);
  EXPECT_EQ(fp16.codecs[14], kTwoBit);
  EXPECT_EQ(fp16.codecs.back(), kFp16);
  const Seen two_bit = run(0.9, 0.7);
  EXPECT_EQ(two_bit.codecs.back(), kTwoBit);
  EXPECT_EQ(run(2, 2).codecs.back(), kDenseCodec);
  // Within 1 % no loss is worth it.
  EXPECT_EQ(run(2, 0.995).codecs.back(), kDenseCodec);
}

TEST(AutoCompression, DecidesAnewWhenTheLinkChanges) {
  const Seen seen = RunWith(
      {"2bit"},
      [](int step, int codec) {
        return Exposed(step < 80 ? 1e-5 : codec == 0 ? 0.1 : 1);
      },
      220);
  ASSERT_EQ(seen.decisions.size(), 3u);
  EXPECT_THAT(seen.decisions[0], HasSubstr("9: off: "));
  EXPECT_THAT(seen.decisions[1], HasSubstr("off while all is measured anew: "));
  EXPECT_THAT(seen.decisions[2], HasSubstr(": 2bit for "));
}

TEST(AutoCompression, StaysWhenTheLinkChangesLittleOrForAMoment) {
  for (const double noise : {1.3, 8.0}) {
    const Seen seen = RunWith(
        {"2bit"},
        [&](int step, int codec) {
          const bool is_noisy =
              noise < 2 ? step % 100 < 50 : step > 100 && step < 150;
          return Exposed((is_noisy ? noise : 1) * (codec == 0 ? 0.08 : 1));
        },
        300);
    EXPECT_EQ(seen.decisions.size(), 1u) << noise;
    EXPECT_EQ(seen.codecs.back(), 0);
  }
}

TEST(AutoCompression, GoesOnWithWhatAnotherRunHasKept) {
  ClusterConfig config;
  config.tensors = {{"a", 1 << 20}, {"b", 1 << 10}};
  config.compression = {
      .type = "fp16", .alternatives = {"2bit"}, .starts_dense = true};
  config.chunk_elems = size_t{1} << 18;
  Cluster cluster(config);
  cluster.Run([&](KVStore& store) {
    const auto make = [&] {
      return AutoCompression(store, OptionsOf(config, {"fp16", "2bit"}));
    };
    AutoCompression kept = make();
    EXPECT_EQ(kept.choice(), std::nullopt);
    ASSERT_THAT(kept.Resume({.codec = "2bit", .tensors = {"a"}}), IsOk());
    for (int step = 0; step < 40; ++step) {
      const auto decisions = kept.AfterStep(Exposed(step < 20 ? 1 : 0.5));
      ASSERT_THAT(decisions, IsOk());
      EXPECT_THAT(*decisions, IsEmpty());
      EXPECT_EQ(kept.codec(), 1);
    }
    ASSERT_TRUE(kept.choice().has_value());
    EXPECT_EQ(kept.choice()->codec, "2bit");
    EXPECT_THAT(kept.choice()->tensors, ElementsAre("a"));
    AutoCompression dense = make();
    ASSERT_THAT(dense.Resume({}), IsOk());
    EXPECT_EQ(dense.codec(), kDenseCodec);
    EXPECT_EQ(dense.choice()->codec, "none");
    EXPECT_THAT(make().Resume({.codec = "int8", .tensors = {"a"}}),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         "int8, which is none of fp16, 2bit"));
    EXPECT_THAT(make().Resume({.codec = "2bit", .tensors = {"c"}}),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         "a tensor c, which is not there"));
  });
}

// What a rule compresses stays so, and is reckoned with.
TEST(AutoCompression, LeavesTensorsOfARuleAlone) {
  const Seen seen = RunWith(
      {"2bit"}, [](int, int codec) { return Exposed(codec == 0 ? 0.1 : 1); },
      30, "b=fp16");
  EXPECT_THAT(seen.decisions, ElementsAre(HasSubstr("2bit for 1 of 2")));
  const Seen all = RunWith(
      {"2bit"}, [](int, int) { return Exposed(1); }, 30, "*=fp16");
  EXPECT_THAT(all.decisions, ElementsAre(AllOf(HasSubstr("9: off: "),
                                               Not(HasSubstr("2bit")))));
}

}  // namespace
}  // namespace telegrad
