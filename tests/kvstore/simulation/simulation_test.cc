// Jobs under seeded faults in virtual time: docs/control_plane.md#simulation.
// Without flags the tests of CI; --seeds=N or --seeds=FIRST:LAST runs so many,
// --seed=N one of them and tells its story.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "tests/kvstore/simulation/simulated_job.h"

namespace telegrad::testing {
namespace {

constexpr unsigned kRealSeconds = 60;  // of one seed, at most

// What a seed's process says.
struct Report {
  bool is_well = false;
  uint64_t trace = 0;
  int64_t num_steps = 0;
  uint64_t num_epochs = 0;
  std::string text;
};

void RunHere(const Scenario& scenario, const Mutation& mutation,
             std::FILE* out) {
  const Outcome outcome = RunScenario(scenario, mutation);
  std::fprintf(out, "%d %llu %lld %llu\n", outcome.wrong.empty() ? 1 : 0,
               static_cast<unsigned long long>(outcome.trace),
               static_cast<long long>(outcome.num_steps),
               static_cast<unsigned long long>(outcome.num_epochs));
  std::fprintf(out, "%s\n%s", absl::StrJoin(outcome.wrong, "\n").c_str(),
               outcome.story.c_str());
  std::fflush(out);
}

std::string ReadAll(std::FILE* file) {
  std::string text;
  std::rewind(file);
  char bytes[4096];
  for (size_t count = 0;
       (count = std::fread(bytes, 1, sizeof(bytes), file)) > 0;) {
    text.append(bytes, count);
  }
  return text;
}

// In a process of its own, which ends with its threads as they stand.
// `is_told`: what members log comes, too.
Report RunApart(const Scenario& scenario, const Mutation& mutation,
                bool is_told) {
  std::FILE* const out = std::tmpfile();
  std::FILE* const log = std::tmpfile();
  const pid_t child = fork();
  if (child == 0) {
    alarm(kRealSeconds);
    if (!is_told) dup2(fileno(log), STDERR_FILENO);
    RunHere(scenario, mutation, out);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  Report report;
  const std::string text = ReadAll(out);
  const std::pair<std::string, std::string> parts =
      absl::StrSplit(text, absl::MaxSplits('\n', 1));
  const std::vector<std::string> numbers = absl::StrSplit(parts.first, ' ');
  const bool has_ended =
      WIFEXITED(status) && WEXITSTATUS(status) == 0 && numbers.size() == 4;
  if (has_ended) {
    report.is_well = numbers[0] == "1";
    (void)absl::SimpleAtoi(numbers[1], &report.trace);
    (void)absl::SimpleAtoi(numbers[2], &report.num_steps);
    (void)absl::SimpleAtoi(numbers[3], &report.num_epochs);
    report.text = parts.second;
  } else {
    report.text = absl::StrCat("its process ended with status ", status, "\n",
                               text, ReadAll(log));
  }
  std::fclose(out);
  std::fclose(log);
  return report;
}

// The number of failing seeds, each of which is printed.
int RunSeeds(uint64_t first, uint64_t last) {
  int num_failed = 0;
  int64_t num_steps = 0;
  uint64_t num_epochs = 0;
  for (uint64_t seed = first; seed <= last; ++seed) {
    const Scenario scenario = DrawScenario(seed);
    const Report report = RunApart(scenario, {}, /*is_told=*/false);
    num_steps += report.num_steps;
    num_epochs += report.num_epochs;
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
    EXPECT_EQ(once.trace, again.trace) << seed;
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

// The job is well, and with the mutation its sums are wrong.
void ExpectFound(const Scenario& scenario, const Mutation& mutation) {
  const Report whole = RunApart(scenario, {}, false);
  EXPECT_TRUE(whole.is_well) << Describe(scenario) << "\n" << whole.text;
  const Report mutant = RunApart(scenario, mutation, false);
  EXPECT_FALSE(mutant.is_well);
  EXPECT_THAT(mutant.text, ::testing::HasSubstr("the members' sum is"))
      << Describe(scenario);
}

TEST(Simulation, IsRedWithoutChecksums) {
  Scenario scenario = DeathOfAWorker();
  scenario.blows.clear();
  scenario.flips = 0.05;
  ExpectFound(scenario, {.blind = Blind::kChecksum});
}

TEST(Simulation, IsRedWithoutFencing) {
  Scenario scenario = DeathOfAWorker();
  scenario.stale = 1;
  ExpectFound(scenario, {.blind = Blind::kFencing});
}

TEST(Simulation, IsRedWithoutDedup) {
  Scenario scenario = DeathOfAWorker();
  scenario.blows.clear();
  scenario.duplicates = 0.2;
  ExpectFound(scenario, {.blind = Blind::kDedup});
}

TEST(Simulation, IsRedWithoutSavedResiduals) {
  ExpectFound(DeathOfAWorker(), {.loses_residuals = true});
}

int RunOne(uint64_t seed) {
  const Scenario scenario = DrawScenario(seed);
  absl::PrintF("%s\n", Describe(scenario));
  const Report report = RunApart(scenario, {}, /*is_told=*/true);
  absl::PrintF("%s%s: trace %d, %d tensors of workers' steps, %d epochs\n",
               report.text, report.is_well ? "well" : "FAILED", report.trace,
               report.num_steps, report.num_epochs);
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
                 "it takes --seed=N, --seeds=N or --seeds=FIRST:LAST\n");
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
  if (argc > 1) return telegrad::testing::RunFlags(argv[1]);
  return RUN_ALL_TESTS();
}
