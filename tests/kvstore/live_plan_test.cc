#include "kvstore/live_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/kvstore/cluster.h"
#include "tests/kvstore/known_speeds.h"
#include "tests/testing/status_matchers.h"

// The plan of what a store does, and what becomes of it while steps run.
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
using ::testing::SizeIs;
using ::testing::StartsWith;

// What cores do does not depend on this machine.
Calibration Speeds(const std::vector<std::string>& codecs) {
  Calibration speeds;
  speeds.cores.value = 8;
  speeds.reduce = {.value = 2e9, .confidence = Confidence::kMeasured};
  for (const std::string& codec : codecs) {
    speeds.codecs.push_back(*KnownSpeeds(codec, {.type = codec}, {}));
    for (const auto speed : {&CodecFigures::encode, &CodecFigures::decode,
                             &CodecFigures::decode_add, &CodecFigures::sum,
                             &CodecFigures::reply_encode}) {
      (speeds.codecs.back().*speed).confidence = Confidence::kMeasured;
    }
  }
  return speeds;
}

constexpr size_t kElems = size_t{1} << 20;

ClusterConfig JobWith(const std::string& codec) {
  ClusterConfig config;
  config.tensors = {{"a.weight", kElems}, {"a.bias", 100}};
  config.compression = {.type = codec, .min_bytes = 1000};
  config.chunk_elems = size_t{1} << 18;
  config.has_values = false;
  return config;
}

LivePlanOptions OptionsOf(const ClusterConfig& config) {
  LivePlanOptions options{.speeds = {.compression = config.compression,
                                     .num_elems = 4096,
                                     .measure_codec = KnownSpeeds},
                          .chunk_elems = config.chunk_elems,
                          .link_time = std::chrono::milliseconds(10)};
  if (config.compression.type != "none") {
    options.speeds.codecs = {config.compression.type};
  }
  for (const TensorSpec& tensor : config.tensors) {
    options.profile.tensors.push_back(
        {.name = tensor.name,
         .num_elems = static_cast<int64_t>(tensor.num_elems)});
  }
  return options;
}

StepTimes Exposed(double seconds) {
  return {.step = seconds, .exchange = seconds, .wait = seconds};
}

struct Told {
  std::vector<std::string> start = {};
  std::vector<std::string> later = {};  // one string for each step, if any
};

// What the workers' plans say of steps that take such exchanges; the same on
// all.
Told Tell(const ClusterConfig& config, double link_bytes_per_s, int num_steps,
          const std::function<StepTimes(int step, int rank)>& times) {
  std::vector<Told> told(static_cast<size_t>(config.workers));
  Cluster(config).Run([&](KVStore& store) {
    Told& mine = told[static_cast<size_t>(store.rank())];
    LivePlanOptions options = OptionsOf(config);
    LivePlan plan(store, options);
    const auto start =
        plan.Start(Speeds(options.speeds.codecs), Link(link_bytes_per_s));
    ASSERT_THAT(start, IsOk());
    mine.start = *start;
    for (int step = 0; step < num_steps; ++step) {
      const auto lines = plan.AfterStep(times(step, store.rank()));
      ASSERT_THAT(lines, IsOk());
      mine.later.insert(mine.later.end(), lines->begin(), lines->end());
    }
    EXPECT_THAT(plan.priorities(), ElementsAre(0, -1));
  });
  for (const Told& each : told) {
    EXPECT_EQ(each.start, told[0].start);
    EXPECT_EQ(each.later, told[0].later);
  }
  return told[0];
}

TEST(LivePlan, PredictsTheRunsOwnCodecAndNone) {
  const Told two_bit = Tell(JobWith("2bit"), kGigabit, 0, {});
  // 4 MiB at 1 Gb/s take 33.6 ms, and a quarter for the way back of the last
  // chunk.
  EXPECT_THAT(
      two_bit.start,
      ElementsAre(
          HasSubstr("compression 2bit for 1 of 2 tensors (break-even"),
          AllOf(HasSubstr("ms with 2bit, 4"),
                HasSubstr(" ms without; by measured speeds of 2 "
                          "worker(s), 1 server(s), 2 core(s) each")),
          HasSubstr("chunk 262144 elements for all tensors (--chunk-elems)"),
          HasSubstr("priority first layers first; followed")));
  const Told none = Tell(JobWith("none"), kGigabit, 0, {});
  EXPECT_EQ(none.start[0], "compression off: asked for");
  EXPECT_THAT(none.start[1], HasSubstr("ms without compression; by"));
  // The server's link is no further limit: the rate was seen with both workers.
  double dense_ms = 0;
  ASSERT_EQ(std::sscanf(none.start[1].c_str(), "exchange predicted %lf ms",
                        &dense_ms),
            1);
  EXPECT_NEAR(dense_ms, 1e3 * 4 * double(kElems) / kGigabit, 12);
}

TEST(LivePlan, NamesTheChunksThatAreFaster) {
  ClusterConfig config = JobWith("none");
  config.chunk_elems = kElems;  // nothing overlaps
  const std::string line = Tell(config, kGigabit, 0, {}).start[2];
  double now_ms = 0;
  double then_ms = 0;
  int elems = 0;
  ASSERT_EQ(
      std::sscanf(line.c_str(),
                  "chunk 1048576 elements for all tensors (--chunk-elems): "
                  "exchange predicted %lf ms, %lf ms with --chunk-elems "
                  "%d; not followed",
                  &now_ms, &then_ms, &elems),
      3)
      << line;
  EXPECT_LT(then_ms, now_ms);
  config.chunk_elems = static_cast<size_t>(elems);
  const Told then = Tell(config, kGigabit, 0, {});
  EXPECT_THAT(then.start[2], HasSubstr("no other is faster"));
  double said_ms = 0;
  ASSERT_EQ(
      std::sscanf(then.start[1].c_str(), "exchange predicted %lf ms", &said_ms),
      1);
  EXPECT_DOUBLE_EQ(said_ms, then_ms);
}

TEST(LivePlan, ReckonsWithTheLeastThreadsOfAWorker) {
  ClusterConfig config = JobWith("2bit");
  std::vector<std::string> said[2];
  Cluster(config).Run([&](KVStore& store) {
    LivePlanOptions options = OptionsOf(config);
    options.threads = store.rank() == 0 ? 8 : 1;
    LivePlan plan(store, options);
    const auto start = plan.Start(Speeds({"2bit"}), Link(kGigabit));
    ASSERT_THAT(start, IsOk());
    said[store.rank()] = *start;
  });
  EXPECT_EQ(said[0], said[1]);
  EXPECT_THAT(said[0], Contains(HasSubstr("1 server(s), 2 core(s) each")));
}

// A byte over InfiniBand takes nothing of a core, which bounds it over TCP.
TEST(LivePlan, ReckonsWithTheCostsOfItsNetwork) {
  ClusterConfig config = JobWith("none");
  Cluster(config).Run([&](KVStore& store) {
    double seconds[2];
    for (const bool is_ib : {false, true}) {
      LivePlanOptions options = OptionsOf(config);
      if (is_ib) options.network = NetworkKind::kInfiniBand;
      LivePlan plan(store, options);
      ASSERT_THAT(plan.Start(Speeds({}), Link(100 * kGigabit)), IsOk());
      seconds[is_ib ? 1 : 0] = plan.plan().comm_s;
    }
    EXPECT_LT(seconds[1], seconds[0]);
  });
}

TEST(LivePlan, ACodecThatIsNotKnownIsLeftOut) {
  ClusterConfig config = JobWith("2bit");
  Cluster(config).Run([&](KVStore& store) {
    LivePlan plan(store, OptionsOf(config));
    const auto start = plan.Start(Speeds({}), Link(kGigabit));
    ASSERT_THAT(start, IsOk());
    EXPECT_EQ((*start)[0], "compression off: asked for");
  });
}

TEST(LivePlan, LooksAtStepsOnceTheyAreKnownAndThenKeepsQuiet) {
  const Told told = Tell(JobWith("2bit"), kGigabit, 400, [](int step, int) {
    return Exposed(step % 2 == 0 ? 0.004 : 0.005);
  });
  ASSERT_THAT(told.later, SizeIs(1));
  EXPECT_THAT(told.later[0],
              AllOf(StartsWith("plan, step 19: steps take 5 ms"),
                    HasSubstr("exchange 5 ms, "), HasSubstr(" ms predicted"),
                    HasSubstr("kept dedicated-servers with 2bit")));
}

TEST(LivePlan, SaysThatBackwardHidesWhatACodecSaves) {
  const Told told = Tell(JobWith("2bit"), kGigabit, 19, [](int, int) {
    return StepTimes{.step = 1, .exchange = 0.5, .wait = 0.001};
  });
  ASSERT_THAT(told.later, SizeIs(1));
  EXPECT_THAT(told.later[0], HasSubstr("999 ms of it without waiting"));
}

// The slowest worker's times count.
TEST(LivePlan, IsMadeAnewWhenTheLinkChangedForTwoLooks) {
  // In memory the store's link is far beyond the one that it begins with.
  const Told told =
      Tell(JobWith("2bit"), 0.01 * kGigabit, 300, [](int step, int rank) {
        return Exposed(step < 100 || rank == 0 ? 0.4 : 4.0);
      });
  // Looks at 19, 83 and 147, which differs; 163 confirms it.
  ASSERT_THAT(told.later, SizeIs(2));
  EXPECT_THAT(
      told.later[1],
      AllOf(StartsWith("plan, step 163: exchanges take 4e+03 ms, 400 "
                       "ms before (waiting 4e+03 ms, 400 ms before): "
                       "link "),
            HasSubstr(" Gb/s, 0.01 before"), HasSubstr("exchange predicted")));
}

TEST(LivePlan, TellsWhatItWouldChooseAndGoesOnFromThere) {
  ClusterConfig config = JobWith("2bit");
  std::vector<std::string> said[2];
  Cluster(config).Run([&](KVStore& store) {
    t_codec_speed = 1e6;  // pays at 0.1 Mb/s, not in memory
    LivePlan plan(store, OptionsOf(config));
    ASSERT_THAT(plan.Start(Speeds({"2bit"}), Link(1e-4 * kGigabit)), IsOk());
    EXPECT_EQ(plan.plan().codec, "2bit");
    for (int step = 0; step < 400; ++step) {
      const auto lines = plan.AfterStep(Exposed(step < 100 ? 2.0 : 0.2));
      ASSERT_THAT(lines, IsOk());
      auto& mine = said[store.rank()];
      mine.insert(mine.end(), lines->begin(), lines->end());
    }
    EXPECT_EQ(plan.plan().codec, "none");
  });
  EXPECT_EQ(said[0], said[1]);
  ASSERT_THAT(said[0], SizeIs(2));
  EXPECT_THAT(said[0][1],
              AllOf(StartsWith("plan, step 163: "),
                    HasSubstr("plan revised: would now choose none for 0 of 2 "
                              "tensors (compression off: "),
                    HasSubstr("this run keeps its codec (--gc-type)")));
}

// Backward hides most of an exchange: the link's change is seen in waiting.
TEST(LivePlan, IsMadeAnewWhenWaitingChanged) {
  const auto with = [](double wait) {
    return Tell(JobWith("2bit"), kGigabit, 300,
                [wait](int step, int) {
                  const double now = step < 30 ? 0.010 : wait;
                  return StepTimes{.step = 0.035 + now,
                                   .exchange = 0.025 + now,
                                   .wait = now};
                })
        .later;
  };
  EXPECT_THAT(with(0.020), ElementsAre(StartsWith("plan, step 19: "),
                                       StartsWith("plan, step 99: ")));
  EXPECT_THAT(with(0.014), SizeIs(1));
}

TEST(LivePlan, OneLongLookIsNoChange) {
  const Told told = Tell(JobWith("2bit"), kGigabit, 400, [](int step, int) {
    return Exposed(step >= 83 && step < 147 ? 0.1 : 0.01);
  });
  EXPECT_THAT(told.later, SizeIs(1));
}

// However often exchanges change: a measurement takes some milliseconds, steps
// of a microsecond would have to be millions before the next.
TEST(LivePlan, MeasuresForAHundredthOfTheTimeAtMost) {
  const Told told = Tell(JobWith("none"), kGigabit, 2000, [](int step, int) {
    return Exposed(step / 200 % 2 == 0 ? 1e-6 : 1e-5);
  });
  EXPECT_THAT(told.later, SizeIs(2));
}

TEST(LivePlan, FollowsWhatTheAutomaticChoiceMeasured) {
  ClusterConfig config = JobWith("2bit");
  config.compression.starts_dense = true;
  std::vector<std::string> said[2];
  Cluster(config).Run([&](KVStore& store) {
    LivePlanOptions options = OptionsOf(config);
    options.is_auto = true;
    LivePlan plan(store, options);
    const auto start = plan.Start(Speeds({"2bit"}), Link(0.01 * kGigabit));
    ASSERT_THAT(start, IsOk());
    EXPECT_THAT(*start, Contains(HasSubstr("--gc-type auto decides")));
    EXPECT_EQ(plan.plan().codec, "2bit");
    for (int step = 0; step < 200; ++step) {
      EXPECT_THAT(*plan.AfterStep(Exposed(step < 50 ? 1 : 10)), IsEmpty());
    }
    AutoMeasurement measured{.seen = {.median = Exposed(4),
                                      .codecs = Speeds({"2bit"}).codecs,
                                      .reduce_elems_per_s = 1e9},
                             .name = "2bit"};
    for (const bool is_first : {true, false}) {
      measured.is_first = is_first;
      const auto lines = plan.AfterDecision(measured);
      ASSERT_THAT(lines, IsOk());
      auto& mine = said[store.rank()];
      mine.insert(mine.end(), lines->begin(), lines->end());
    }
  });
  EXPECT_EQ(said[0], said[1]);
  ASSERT_THAT(said[0], SizeIs(2));
  EXPECT_THAT(said[0], Each(AllOf(StartsWith("plan, step 200: dense exchanges "
                                             "take 4e+03 ms; "),
                                  HasSubstr("--gc-type auto uses 2bit"))));
  EXPECT_THAT(said[0][0], Not(HasSubstr("before")));
  EXPECT_THAT(said[0][1], HasSubstr(" Gb/s, 0.01 before"));
}

// The link is measured again at the first decision of these alone: steps of a
// millisecond would have to be thousands before the next.
TEST(LivePlan, MeasuresTheLinkForAHundredthOfTheTimeAfterDecisions) {
  ClusterConfig config = JobWith("2bit");
  config.compression.starts_dense = true;
  Cluster(config).Run([&](KVStore& store) {
    LivePlanOptions options = OptionsOf(config);
    options.is_auto = true;
    LivePlan plan(store, options);
    ASSERT_THAT(plan.Start(Speeds({"2bit"}), Link(kGigabit)), IsOk());
    const AutoMeasurement measured{.seen = {.median = Exposed(1e-3),
                                            .codecs = Speeds({"2bit"}).codecs,
                                            .reduce_elems_per_s = 1e9},
                                   .is_first = false,
                                   .name = "2bit"};
    std::vector<std::string> said;
    for (int decision = 0; decision < 3; ++decision) {
      for (int step = 0; step < 100; ++step) {
        ASSERT_THAT(plan.AfterStep(Exposed(1e-3)), IsOk());
      }
      const auto lines = plan.AfterDecision(measured);
      ASSERT_THAT(lines, IsOk());
      said.insert(said.end(), lines->begin(), lines->end());
    }
    EXPECT_THAT(
        said, ElementsAre(HasSubstr(" Gb/s, 1 before; "),
                          Not(HasSubstr("before")), Not(HasSubstr("before"))));
  });
}

// Where no chunk can be better there is none to name.
TEST(LivePlan, NamesNoOtherChunkForALinkThatTakesForEver) {
  EXPECT_THAT(Tell(JobWith("2bit"), 1e-306, 0, {}).start,
              Contains(HasSubstr("(--chunk-elems): no other is faster")));
}

TEST(LivePlan, DoesNotChooseForTensorsOfRules) {
  ClusterConfig config = JobWith("2bit");
  config.tensors = {{"a.weight", kElems}, {"b.weight", kElems}};
  config.compression.rules = "b=fp16";
  config.compression.starts_dense = true;
  Cluster(config).Run([&](KVStore& store) {
    LivePlanOptions options = OptionsOf(config);
    options.is_auto = true;
    LivePlan plan(store, options);
    ASSERT_THAT(plan.Start(Speeds({"2bit", "fp16"}), Link(0.01 * kGigabit)),
                IsOk());
    ASSERT_THAT(plan.plan().tensors, SizeIs(2));
    EXPECT_EQ(plan.plan().tensors[0].codec, "2bit");
    EXPECT_EQ(plan.plan().tensors[1].codec, "fp16");
  });
}

TEST(CodecsOf, KnowsTheSettingsOfRulesAndOfTheType) {
  const auto report = [](const char* setting, bool has_rule) {
    TensorReport made;
    made.setting = setting;
    made.has_rule = has_rule;
    return made;
  };
  const std::vector<TensorReport> reports = {
      report("none", false), report("topk:0.01", true), report("none", true),
      report("int8:block=256", false)};
  EXPECT_THAT(CodecsOf(reports, /*is_choice=*/false),
              ElementsAre("none", "topk:0.01", "none", "int8:block=256"));
  EXPECT_THAT(CodecsOf(reports, /*is_choice=*/true),
              ElementsAre("none", "topk:0.01", "none", ""));
}

}  // namespace
}  // namespace telegrad
