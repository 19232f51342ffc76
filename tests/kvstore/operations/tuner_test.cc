#include "kvstore/operations/tuner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "kvstore/operations/negotiation.h"
#include "tests/kvstore/operations/operations_ranks.h"

namespace telegrad::testing {
namespace {

using operations::Negotiation;
using operations::Setting;
using operations::Tuner;
using operations::TuningOptions;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Milliseconds = std::chrono::milliseconds;

constexpr Setting kFirst = {int64_t{64} << 20, Milliseconds(1)};

// Tunes on a machine whose step of two tensors takes what `seconds_of` says of
// a setting; gives what was chosen.
template <typename SecondsOf>
Setting Tuned(Tuner& tuner, const SecondsOf& seconds_of) {
  TimePoint now = TimePoint() + Milliseconds(1);
  for (int step = 0; step < 2000 && !tuner.is_done(); ++step) {
    const Setting setting = Tuner::SettingOf(kFirst, tuner.choice());
    EXPECT_LT(tuner.choice(), Tuner::kMaxChoices);
    tuner.Count("a", 1000);
    tuner.Count("b", 3000);
    now += FromSeconds(seconds_of(setting));
    tuner.Advance(now);
  }
  EXPECT_TRUE(tuner.is_done());
  return Tuner::SettingOf(kFirst, tuner.choice());
}

TEST(Tuner, FindsTheSettingWithTheFastestSteps) {
  Tuner tuner(kFirst, {.is_on = true});
  const Setting found = Tuned(tuner, [](const Setting& setting) {
    const double mib = static_cast<double>(setting.fusion_bytes) / (1 << 20);
    const double ms = ToSeconds(setting.cycle) * 1e3;
    return .01 + .001 * std::abs(mib - 8) + .002 * std::abs(ms - 2.5);
  });
  EXPECT_EQ(found.fusion_bytes, int64_t{8} << 20);
  EXPECT_EQ(found.cycle, std::chrono::microseconds(2500));
  EXPECT_THAT(tuner.log(),
              StartsWith("cycle_time_ms,tensor_fusion_threshold,score\n"
                         "1,67108864,"));
  EXPECT_EQ(std::count(tuner.log().begin(), tuner.log().end(), '\n'), 15);
}

TEST(Tuner, KeepsWhatWasSetWhereNothingIsFaster) {
  Tuner tuner(kFirst, {.is_on = true, .warmup_samples = 0});
  const Setting found = Tuned(tuner, [](const Setting& setting) {
    return setting.fusion_bytes == kFirst.fusion_bytes &&
                   setting.cycle == kFirst.cycle
               ? .01
               : .011;
  });
  EXPECT_EQ(found.fusion_bytes, kFirst.fusion_bytes);
  EXPECT_EQ(found.cycle, kFirst.cycle);
}

// A disturbed sample is none of three's median, and warm-up counts for nothing.
TEST(Tuner, TakesTheMedianBehindTheWarmUp) {
  Tuner tuner(kFirst, {.is_on = true, .steps_per_sample = 1});
  int step = 0;
  const Setting found = Tuned(tuner, [&step](const Setting& setting) {
    const bool is_disturbed = ++step <= 3 || step % 3 == 0;
    const bool is_good = setting.fusion_bytes == int64_t{4} << 20;
    return is_disturbed ? 1. : is_good ? .01 : .02;
  });
  EXPECT_EQ(found.fusion_bytes, int64_t{4} << 20);
}

TEST(Tuner, EndsASampleOfNamesThatDoNotComeAgainByTime) {
  Tuner tuner(kFirst, {.is_on = true, .warmup_samples = 0});
  TimePoint now = TimePoint() + Milliseconds(1);
  int i = 0;
  while (!tuner.is_done() && i < 10000) {
    tuner.Count(absl::StrCat("x", ++i), 1000);
    tuner.Advance(now += Milliseconds(500));
  }
  EXPECT_TRUE(tuner.is_done());
}

TEST(Tuner, ItsChoicesGoWithTheNotice) {
  Negotiation negotiation(0, 1, 64);
  EXPECT_EQ(Tuner::ToldBy(negotiation.notice()[0]), std::nullopt);
  negotiation.Stop();
  negotiation.Tell(1, Want<float>(Kind::kBarrier, "x", {})->request);
  const uint64_t without = negotiation.notice()[0];
  for (int choice = 0; choice < Tuner::kMaxChoices; ++choice) {
    const uint64_t word = without | Tuner::FlagsOf(choice);
    EXPECT_EQ(Tuner::ToldBy(word), choice);
    EXPECT_EQ(word & ~Tuner::FlagsOf(choice), without);
    EXPECT_EQ(Negotiation::RequestBytes(word),
              Negotiation::RequestBytes(without));
  }
  EXPECT_EQ(Tuner::ToldBy(without), std::nullopt);
  // What cannot come from our own ranks is one of the list all the same.
  for (int choice = 0; choice < 127; ++choice) {
    EXPECT_GE(Tuner::SettingOf(kFirst, choice).fusion_bytes, 1 << 20);
  }
}

std::string TextOf(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// Ranks that disagreed on the fusion would sum unequal counts, which ends them.
TEST(Autotune, RanksChangeTogetherAndSumOn) {
  operations::Options options;
  options.cycle = std::chrono::microseconds(100);
  options.tuning = {.is_on = true,
                    .log = ::testing::TempDir() + "/autotune.csv",
                    .warmup_samples = 1,
                    .steps_per_sample = 1};
  std::remove(options.tuning.log.c_str());
  RunOperations(
      3,
      [](Operations& operations) {
        const std::vector<float> values(200000, 1);  // two of them: 1.5 MiB
        for (int step = 0; step < 60; ++step) {
          std::vector<int64_t> handles;
          for (const char* name : {"a", "b", "c"}) {
            const auto handle =
                operations.Submit(Want(Kind::kAllreduce, name, values));
            ASSERT_THAT(handle, IsOk());
            handles.push_back(*handle);
          }
          for (const int64_t handle : handles) {
            ASSERT_EQ(ResultOf<float>(operations, handle)[0], 3);
          }
        }
      },
      options);
  const std::string log = TextOf(options.tuning.log);
  EXPECT_THAT(log, HasSubstr("score\n0.1,67108864,"));
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 15) << log;
}

TEST(Timeline, BeginsAndEndsWhileOperationsRun) {
  const std::string folder = ::testing::TempDir();
  RunOperations(2, [&folder](Operations& operations) {
    const std::vector<float> values(100, 1);
    const auto reduce = [&](const char* name) {
      EXPECT_EQ(Do<float>(operations, Want(Kind::kAllreduce, name, values))[0],
                2);
    };
    const std::string own = operations.rank() == 0 ? "" : ".1";
    EXPECT_THAT(operations.StopTimeline(),
                StatusIs(absl::StatusCode::kFailedPrecondition, "none"));
    reduce("before");
    const std::string first = folder + "/first.json";
    EXPECT_THAT(operations.StartTimeline(first, /*marks_cycles=*/true), IsOk());
    EXPECT_THAT(operations.StartTimeline("other", false),
                StatusIs(absl::StatusCode::kFailedPrecondition, "first.json"));
    reduce("within");
    EXPECT_THAT(operations.StopTimeline(), IsOk());
    reduce("behind");
    const std::string text = TextOf(first + own);
    EXPECT_THAT(text, HasSubstr("within"));
    EXPECT_THAT(text, HasSubstr("NEGOTIATE"));
    EXPECT_THAT(text, HasSubstr("CYCLE"));
    EXPECT_THAT(text, ::testing::Not(HasSubstr("behind")));
    EXPECT_THAT(operations.StartTimeline(folder + "/no/such/folder", false),
                IsOk());
    EXPECT_FALSE(operations.StopTimeline().ok());
    EXPECT_THAT(operations.StartTimeline(folder + "/last.json", false), IsOk());
    reduce("last");
  });
  for (const char* name : {"/last.json", "/last.json.1"}) {
    const std::string text = TextOf(folder + name);
    EXPECT_THAT(text, HasSubstr("last"));
    EXPECT_THAT(text, ::testing::Not(HasSubstr("CYCLE")));
  }
}

}  // namespace
}  // namespace telegrad::testing
