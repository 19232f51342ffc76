// Jobs under seeded faults in virtual time: docs/control_plane.md#simulation.
// Without flags the tests of CI; --seeds=N or --seeds=FIRST:LAST runs so many,
// --seed=N one of them and tells its story; --goodput of goodput.h.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "tests/kvstore/simulation/goodput.h"
#include "tests/kvstore/simulation/run_apart.h"
#include "tests/kvstore/simulation/simulated_job.h"

namespace telegrad::testing {
namespace {

// The number of failing seeds, each of which is printed.
int RunSeeds(uint64_t first, uint64_t last) {
  int num_failed = 0;
  int64_t num_steps = 0;
  uint64_t num_epochs = 0;
  for (uint64_t seed = first; seed <= last; ++seed) {
    const Scenario scenario = DrawScenario(seed);
    const Report report = RunApart(scenario, {}, /*is_told=*/false);
    num_steps += report.outcome.num_steps;
    num_epochs += report.outcome.num_epochs;
    if (report.is_well) continue;
    ++num_failed;
    absl::PrintF("FAILED %s\n%s  again: test_kvstore_simulation --seed=%d\n",
                 Describe(scenario), report.text, seed);
    std::fflush(stdout);
  }
  absl::PrintF(
      "seeds %d to %d: %d failed; %d tensors of workers' steps compared in %d "
      "epochs\n",
      first, last, num_failed, num_steps, num_epochs);
  return num_failed;
}

TEST(Simulation, TwoHundredSeedsAreExactAndEnd) {
  EXPECT_EQ(RunSeeds(1, 200), 0);
}

TEST(Simulation, ASeedReplays) {
  for (const uint64_t seed : {3, 14, 15}) {
    const Report once = RunApart(DrawScenario(seed), {}, false);
    const Report again = RunApart(DrawScenario(seed), {}, false);
    EXPECT_EQ(once.outcome.trace, again.outcome.trace) << seed;
    EXPECT_EQ(once.text, again.text) << seed;
  }
}

// A job in which a worker dies after checkpoints, with what the mutations need.
Scenario DeathOfAWorker() {
  Scenario scenario{.seed = 1, .workers = 3, .servers = 2, .is_elastic = true};
  scenario.codec = "2bit";
  scenario.steps = 16;
  scenario.latency = std::chrono::milliseconds(1);
  scenario.blows.push_back({.kind = Blow::Kind::kKill,
                            .member = 2,
                            .at = std::chrono::milliseconds(250)});
  return scenario;
}

// The job is well, and with the mutation an oracle says so. A codec may refuse
// what the mutation lets pass, which ends the job well: other seeds are tried.
void ExpectFound(Scenario scenario, const Mutation& mutation) {
  const Report whole = RunApart(scenario, {}, false);
  EXPECT_TRUE(whole.is_well) << Describe(scenario) << "\n" << whole.text;
  Report mutant = RunApart(scenario, mutation, false);
  for (int more = 0; mutant.is_well && more < 9; ++more) {
    ++scenario.seed;
    mutant = RunApart(scenario, mutation, false);
  }
  EXPECT_FALSE(mutant.is_well);
  const char* const words =
      scenario.is_async ? "which is not what" : "the members' sum is";
  EXPECT_THAT(mutant.text, ::testing::HasSubstr(words)) << Describe(scenario);
}

// With each type of store that the mutation is of.
void ExpectFoundInBoth(Scenario scenario, const Mutation& mutation) {
  ExpectFound(scenario, mutation);
  scenario.is_async = true;
  ExpectFound(scenario, mutation);
}

TEST(Simulation, IsRedWithoutChecksums) {
  Scenario scenario = DeathOfAWorker();
  scenario.blows.clear();
  scenario.flips = 0.05;
  ExpectFoundInBoth(scenario, {.blind = Blind::kChecksum});
}

TEST(Simulation, IsRedWithoutFencing) {
  Scenario scenario = DeathOfAWorker();
  scenario.stale = 1;
  ExpectFoundInBoth(scenario, {.blind = Blind::kFencing});
}

// One that came in the place of a dead worker is ended for a frame of the epoch
// before, of which an older member is the sender.
TEST(Simulation, WhoHasComeAnswersForAWrongFrame) {
  for (const uint64_t seed : {263, 401}) {
    const Report report = RunApart(DrawScenario(seed), {}, false);
    EXPECT_TRUE(report.is_well) << seed << "\n" << report.text;
  }
}

// Workers of a host have a job of their own: who dies, and who stood still
// beyond that job's deadlines, is named by the whole job, with its ranks.
TEST(Simulation, WorkersOfAHostEndByWhatTheJobSays) {
  for (const uint64_t seed : {704, 737, 5176}) {
    const Report report = RunApart(DrawScenario(seed), {}, false);
    EXPECT_TRUE(report.is_well) << seed << "\n" << report.text;
  }
}

// The scheduler stood still until workers had ended with 24, and calls them
// dead.
TEST(Simulation, WhoEndsWithoutTheSchedulerIsDeadForIt) {
  const Report report = RunApart(DrawScenario(819), {}, false);
  EXPECT_TRUE(report.is_well) << report.text;
}

// The bit that was altered is one of a sealed frame's length.
TEST(Simulation, WhoseSealedLengthIsAlteredEndsWithIntegrity) {
  const Report report = RunApart(DrawScenario(6084), {}, false);
  EXPECT_TRUE(report.is_well) << report.text;
}

// A newcomer takes the place of a worker that was cut off until then, and that
// one is refused.
TEST(Simulation, WhoComesLateMayFindNoPlace) {
  const Report report = RunApart(DrawScenario(5608), {}, false);
  EXPECT_TRUE(report.is_well) << report.text;
}

TEST(Simulation, IsRedWithoutDedup) {
  Scenario scenario = DeathOfAWorker();
  scenario.blows.clear();
  scenario.duplicates = 0.2;
  ExpectFoundInBoth(scenario, {.blind = Blind::kDedup});
}

TEST(Simulation, IsRedWithoutSavedResiduals) {
  ExpectFound(DeathOfAWorker(), {.loses_residuals = true});
}

// Codecs hold back what a host's workers have in common: other sums than of
// workers that push for themselves.
TEST(Simulation, WorkersOfAHostSumFirst) {
  Scenario scenario = DeathOfAWorker();
  scenario.blows.clear();
  scenario.is_elastic = false;
  scenario.hosts = 2;
  scenario.encryption = Encryption::kAuth;
  const Report report = RunApart(scenario, {}, false);
  EXPECT_TRUE(report.is_well) << report.text;
  EXPECT_EQ(report.outcome.num_steps, 3 * 2 * scenario.steps);
}

// What workers count and what servers have written down is the same.
TEST(Simulation, GoodputIsThatOfTheStepsThatCount) {
  const Goodput goodput = MeasureGoodput({.workers = 4,
                                          .servers = 2,
                                          .minutes = 0.5,
                                          .every_s = 6,
                                          .step_s = 0.5,
                                          .save_every = 5,
                                          .save_s = 0.1,
                                          .load_s = 0.2,
                                          .start_s = 1});
  EXPECT_TRUE(goodput.report.is_well) << goodput.report.text;
  EXPECT_EQ(goodput.steps, 60);
  EXPECT_GE(goodput.report.outcome.num_kills, 4);
  EXPECT_EQ(goodput.report.outcome.num_made, goodput.report.outcome.num_summed);
  EXPECT_GT(goodput.again, 0);
  EXPECT_LT(goodput.share, 1);
  EXPECT_GT(goodput.share, 0.5);
}

int RunOne(uint64_t seed) {
  const Scenario scenario = DrawScenario(seed);
  absl::PrintF("%s\n", Describe(scenario));
  const Report report = RunApart(scenario, {}, /*is_told=*/true);
  absl::PrintF("%s%s: trace %d, %d tensors of workers' steps, %d epochs\n",
               report.text, report.is_well ? "well" : "FAILED",
               report.outcome.trace, report.outcome.num_steps,
               report.outcome.num_epochs);
  return report.is_well ? 0 : 1;
}

}  // namespace

int RunFlags(const std::string& flag) {
  absl::string_view text = flag;
  uint64_t first = 1;
  uint64_t last = 0;
  if (absl::ConsumePrefix(&text, "--seed=") && absl::SimpleAtoi(text, &first)) {
    return RunOne(first);
  }
  const std::pair<std::string, std::string> parts =
      absl::StrSplit(text, absl::MaxSplits(':', 1));
  absl::string_view begin = parts.first;
  if (!absl::ConsumePrefix(&begin, "--seeds=") ||
      !absl::SimpleAtoi(begin, &last)) {
    std::fprintf(stderr,
                 "it takes --seed=N, --seeds=N, --seeds=FIRST:LAST or "
                 "--goodput\n");
    return 2;
  }
  if (!parts.second.empty()) {
    first = last;
    if (!absl::SimpleAtoi(parts.second, &last)) return 2;
  }
  return RunSeeds(first, last) == 0 ? 0 : 1;
}

}  // namespace telegrad::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  const std::vector<std::string> flags(argv + 1, argv + argc);
  if (!flags.empty() && flags[0] == "--goodput") {
    return telegrad::testing::RunGoodput({flags.begin() + 1, flags.end()});
  }
  if (!flags.empty()) return telegrad::testing::RunFlags(flags[0]);
  return RUN_ALL_TESTS();
}
