#include "tests/kvstore/simulation/goodput.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace telegrad::testing {
namespace {

constexpr unsigned kRealSeconds = 6 * 3600;

// A step more than that, since time begins behind the first one, so that there
// are as many checkpoints as go into the steps.
Scenario JobOf(const GoodputPlan& plan, double seconds) {
  Scenario scenario{.seed = plan.seed,
                    .workers = plan.workers,
                    .servers = plan.servers,
                    .is_elastic = true};
  scenario.codec = "2bit";
  const auto save_every = static_cast<double>(plan.save_every);
  const double num_saves = std::round(seconds / plan.step_s / save_every);
  scenario.steps =
      plan.save_every * static_cast<int64_t>(std::max(num_saves, 1.0)) + 1;
  scenario.latency = std::chrono::milliseconds(1);
  const Duration step = FromSeconds(plan.step_s);
  scenario.pace = {.least = step,
                   .most = step,
                   .steps_per_checkpoint = plan.save_every,
                   .save = FromSeconds(plan.save_s),
                   .load = FromSeconds(plan.load_s)};
  scenario.timing = {};
  scenario.most = FromSeconds(10 * seconds + 600);
  return scenario;
}

double StepSeconds(const Report& report, int64_t steps) {
  return ToSeconds(report.outcome.trained) / static_cast<double>(steps);
}

// False: one of them is none.
bool Read(const std::vector<std::string>& flags, GoodputPlan& plan) {
  double workers = plan.workers;
  double servers = plan.servers;
  auto save_every = static_cast<double>(plan.save_every);
  auto seed = static_cast<double>(plan.seed);
  const std::map<std::string, double*> known = {
      {"--workers", &workers},      {"--servers", &servers},
      {"--minutes", &plan.minutes}, {"--every", &plan.every_s},
      {"--step", &plan.step_s},     {"--save-every", &save_every},
      {"--save", &plan.save_s},     {"--load", &plan.load_s},
      {"--start", &plan.start_s},   {"--seed", &seed}};
  for (const std::string& flag : flags) {
    if (flag == "--silent") {
      plan.is_silent = true;
      continue;
    }
    const std::pair<std::string, std::string> parts =
        absl::StrSplit(flag, absl::MaxSplits('=', 1));
    const auto found = known.find(parts.first);
    if (found == known.end() ||
        !absl::SimpleAtod(parts.second, found->second) ||
        !(*found->second >= 0 && *found->second <= 1e6)) {
      return false;
    }
  }
  plan.workers = std::max(static_cast<int>(workers), 2);
  plan.servers = std::max(static_cast<int>(servers), 1);
  plan.save_every = std::max(static_cast<int64_t>(save_every), int64_t{1});
  plan.seed = static_cast<uint64_t>(seed);
  plan.step_s = std::max(plan.step_s, 0.001);
  return true;
}

}  // namespace

Goodput MeasureGoodput(const GoodputPlan& plan) {
  Goodput goodput;
  const Scenario quiet = JobOf(plan, std::min(plan.every_s, plan.minutes * 60));
  goodput.report = RunApart(quiet, {}, false, kRealSeconds);
  if (!goodput.report.is_well) return goodput;
  goodput.quiet_step_s = StepSeconds(goodput.report, quiet.steps - 1);

  std::string folder =
      std::filesystem::temp_directory_path() / "telegrad-goodput-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) std::abort();
  Scenario killed = JobOf(plan, plan.minutes * 60);
  killed.kills = {.every = FromSeconds(plan.every_s),
                  .start = FromSeconds(plan.start_s),
                  .are_silent = plan.is_silent};
  killed.ledger = folder;
  goodput.report = RunApart(killed, {}, false, kRealSeconds);
  std::filesystem::remove_all(folder);
  const Outcome& outcome = goodput.report.outcome;
  goodput.steps = killed.steps - 1;
  goodput.again = outcome.num_made - killed.steps;
  goodput.seconds = ToSeconds(outcome.trained);
  goodput.share =
      goodput.quiet_step_s / StepSeconds(goodput.report, goodput.steps);
  return goodput;
}

int RunGoodput(const std::vector<std::string>& flags) {
  GoodputPlan plan;
  if (!Read(flags, plan)) {
    std::fprintf(stderr,
                 "--goodput takes --silent and, with a number of 0 to 1000000 "
                 "each, --workers= --servers= --minutes= --every= --step= "
                 "--save-every= --save= --load= --start= --seed=\n");
    return 2;
  }
  const Goodput goodput = MeasureGoodput(plan);
  if (!goodput.report.is_well) {
    std::fprintf(stderr, "%s\n", goodput.report.text.c_str());
    return 1;
  }
  const Outcome& outcome = goodput.report.outcome;
  absl::PrintF(
      "{\"workers\": %d, \"servers\": %d, \"every_s\": %g, \"silent\": %s, "
      "\"step_s\": %g, \"save_every\": %d, \"save_s\": %g, \"load_s\": %g, "
      "\"start_s\": %g, \"kills\": %d, \"epochs\": %d, \"steps\": %d, "
      "\"steps_again\": %d, \"seconds\": %.1f, \"quiet_step_s\": %.4f, "
      "\"goodput\": %.4f}\n",
      plan.workers, plan.servers, plan.every_s,
      plan.is_silent ? "true" : "false", plan.step_s, plan.save_every,
      plan.save_s, plan.load_s, plan.start_s, outcome.num_kills,
      outcome.num_epochs, goodput.steps, goodput.again, goodput.seconds,
      goodput.quiet_step_s, goodput.share);
  return 0;
}

}  // namespace telegrad::testing
