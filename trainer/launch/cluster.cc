#include "trainer/launch/cluster.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/exit_code.h"
#include "base/status_macros.h"
#include "base/units.h"
#include "kernels/device_scope.h"
#include "kvstore/job/flight/flight_log.h"
#include "trainer/checkpoint/checkpoint_folder.h"
#include "trainer/launch/what_if.h"
#include "trainer/networks/gpus.h"
#include "trainer/run/run_plan.h"
#include "trainer/run/step_timeline.h"

namespace telegrad {
namespace {

// Lines of at most 100 columns; none begins with a percent sign.
std::string Wrap(absl::string_view text) {
  constexpr char kTied[] = "\x1f%";
  std::string wrapped;
  size_t column = 0;
  for (const absl::string_view word :
       absl::StrSplit(absl::StrReplaceAll(text, {{" %", kTied}}), ' ')) {
    const bool fits = column == 0 || column + 1 + word.size() <= 100;
    absl::StrAppend(&wrapped, column == 0 ? "" : fits ? " " : "\n", word);
    column = (fits && column > 0 ? column + 1 : 0) + word.size();
  }
  return absl::StrReplaceAll(wrapped, {{kTied, " %"}});
}

// The GPU that ChooseDevice will deal this process; empty: not known yet.
absl::StatusOr<std::string> BusIdOfGpu(const TrainOptions& options) {
  if (!options.local_rank.has_value() || options.gpus == kEmulatedGpu) {
    return "";
  }
  ASSIGN_OR_RETURN(const std::vector<int> gpus, ParseGpus(options.gpus));
  const int place = *options.local_rank * options.devices;
  const int gpu = gpus.empty() ? place : DealGpu(gpus, place);
  return kernels::BusIdOf({DeviceKind::kCuda, gpu});
}

// Results are kept even if nothing can be said of other links.
ReportExtras ExtrasOf(const TrainOptions& options,
                      const std::vector<RunSummary>& results) {
  ReportExtras extras = {.target = options.laboratory.target};
  absl::StatusOr<std::vector<WhatIfRow>> rows = WhatIf(options, results);
  if (rows.ok()) {
    extras.what_if = *std::move(rows);
  } else {
    std::fprintf(stderr, "telegrad-train: --what-if: %s\n",
                 std::string(rows.status().message()).c_str());
  }
  return extras;
}

}  // namespace

std::vector<ComparedRun> RunsOf(const TrainOptions& options) {
  std::vector<ComparedRun> runs;
  for (size_t i = 0; i < options.settings.size(); ++i) {
    for (const uint64_t seed : options.seeds) {
      runs.push_back({.setting = &options.settings[i],
                      .setting_index = static_cast<int>(i),
                      .seed = seed,
                      .label = options.seeds.size() > 1
                                   ? absl::StrCat(options.settings[i].name,
                                                  ", seed ", seed)
                                   : options.settings[i].name});
    }
  }
  return runs;
}

std::string AdviceOn(ExitCode code, const TrainOptions& options,
                     size_t num_finished, size_t num_runs) {
  if (num_finished > 0) {
    return absl::StrCat("; ", num_finished, " of ", num_runs,
                        " runs are done: --continue does the others");
  }
  if (code == ExitCode::kNumericFault) return "; a lower --lr may help";
  // Neither wrong input nor what was there before the first step.
  const bool is_late =
      code >= ExitCode::kPeerDied && code != ExitCode::kAuthentication &&
      code != ExitCode::kMismatch && code != ExitCode::kNoCheckpoint;
  return is_late && !CheckpointFolder(options.checkpoint).Steps().empty()
             ? absl::StrCat("; --resume goes on from ", options.checkpoint)
             : "";
}

ConsoleObserver::ConsoleObserver(Output& display, const Progress::Part& part,
                                 Style style)
    : progress_(style == Style::kJson
                    ? MakeJsonProgress(display, part)
                    : MakeProgress(display,
                                   style == Style::kBarOnTerminal &&
                                       isatty(display.fd()) != 0,
                                   part)) {}

ConsoleObserver::~ConsoleObserver() { progress_->Finish(); }

void ConsoleObserver::OnProgress(const Progress::State& state) {
  progress_->Update(state);
}
void ConsoleObserver::OnLine(const std::string& text) { progress_->Line(text); }
void ConsoleObserver::OnSummary(const RunSummary& summary) {
  has_summary_ = true;
  summary_ = summary;
}

absl::StatusOr<DistOptions> MakeDistOptions(const TrainOptions& options,
                                            const std::string& job_id) {
  ASSIGN_OR_RETURN(DistOptions dist, DistOptionsOf(options, job_id));
  dist.num_devices = options.devices;
  dist.emulated_servers = options.laboratory.emulated_servers;
  dist.chunk_elems = options.chunk_elems;
  dist.max_staleness = options.max_staleness;
  dist.drop_slowest = options.drop_slowest;
  for (const Facts& more : {options.laboratory.facts, NetworkVariables()}) {
    dist.facts.insert(dist.facts.end(), more.begin(), more.end());
  }
  if (!options.inject_link.empty()) {
    ASSIGN_OR_RETURN(const LinkSpec link, ParseLink(options.inject_link));
    dist.path.transport.link_bytes_per_s = link.bytes_per_s;
    dist.path.transport.link_latency_s = link.latency_s;
  }
  ASSIGN_OR_RETURN(dist.path.tier_one, ParseTierOne(options.tier_one));
  if (!options.gpus.empty()) {
    ASSIGN_OR_RETURN(dist.path.gdr, ParseGdr(options.gdr));
    ASSIGN_OR_RETURN(dist.path.gpu_bus_id, BusIdOfGpu(options));
  }
  return dist;
}

std::shared_ptr<FlightLog> FlightLogOf(const TrainOptions& options,
                                       const Setting& setting, uint64_t seed) {
  const std::string folder = options.flight_recorder.empty()
                                 ? absl::StrCat(options.out, "/flight")
                                 : options.flight_recorder;
  const bool is_alone = options.settings.size() * options.seeds.size() == 1;
  return std::make_shared<FlightLog>(
      is_alone ? folder : TracePrefix(folder, setting.name, seed));
}

absl::Status PrintResults(const TrainOptions& options, Output& display,
                          const std::vector<RunSummary>& results) {
  while (!display.Flush(std::chrono::hours(1))) {
  }
  if (results.empty()) return absl::OkStatus();
  const ReportExtras extras = ExtrasOf(options, results);
  // First: nobody may read what is printed.
  const absl::Status written =
      WriteResults(options.out, results, options.command_line, extras);
  if (options.laboratory.log_json) {
    for (const RunSummary& run : results) {
      std::printf("%s\n", ResultEvent(run).c_str());
    }
    std::fflush(stdout);
    return written;
  }
  std::fputs("\n", stdout);
  std::fputs(SummaryTable(results).c_str(), stdout);
  std::printf("\n%s\n", Wrap(SummarySentences(results)).c_str());
  std::fflush(stdout);
  if (const std::string text = WhatIfText(extras); !text.empty()) {
    std::printf("\n%s", text.c_str());
  }
  RETURN_IF_ERROR(written);
  std::printf("Report: %s/report.html (figures: summary.json, metrics.jsonl)\n",
              options.out.c_str());
  std::fflush(stdout);
  return absl::OkStatus();
}

}  // namespace telegrad
