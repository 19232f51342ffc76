#include "trainer/cluster.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "trainer/dataset.h"
#include "trainer/network.h"
#include "trainer/profile.h"
#include "trainer/run_plan.h"
#include "transport/check_transport.h"

namespace telegrad {

std::vector<PlannedRun> PlanRuns(const TrainOptions& options) {
  std::vector<PlannedRun> runs;
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

absl::Status CheckInputs(const TrainOptions& options) {
  RETURN_IF_ERROR(CheckTransport(TransportOptionsOf(options)));
  if (!options.rails.empty() && options.secret_file.empty() &&
      !options.insecure) {
    return absl::InvalidArgumentError(
        "--rails listens where others may reach it: it needs --secret-file, "
        "or --insecure");
  }
  if (options.transport == "inproc") {
    return absl::InvalidArgumentError(
        "--transport inproc stays within one process, and workers are "
        "processes of their own; tcp reaches them everywhere");
  }
  if (!options.benchmark) RETURN_IF_ERROR(CheckDataset(options.data));
  if (IsProfile(options.network)) return absl::OkStatus();
  return MakeNetwork({.name = options.network,
                      .channels = 1,
                      .rows = 28,
                      .cols = 28,
                      .num_classes = 10,
                      .seed = 0})
      .status();
}

ConsoleObserver::ConsoleObserver(const std::string& label, Style style)
    : progress_(MakeProgress(
          STDOUT_FILENO,
          style == Style::kBarOnTerminal && isatty(STDOUT_FILENO) != 0,
          label)) {}

ConsoleObserver::~ConsoleObserver() { progress_->Finish(); }

void ConsoleObserver::OnProgress(const Progress::State& state) {
  progress_->Update(state);
}
void ConsoleObserver::OnLine(const std::string& text) { progress_->Line(text); }
void ConsoleObserver::OnSummary(const RunSummary& summary) {
  has_summary_ = true;
  summary_ = summary;
}

TransportOptions TransportOptionsOf(const TrainOptions& options) {
  TransportOptions transport;
  transport.name = options.transport;
  transport.bind_address = options.bind;
  transport.tls = options.tls;
  transport.connections =
      std::max<size_t>(1, ParseConnections(options.connections).value_or(1));
  transport.rails = options.rails;
  transport.resend = options.resend;
  transport.congestion = options.tcp_congestion;
  transport.link_bytes_per_s = options.link_spec.bytes_per_s;
  transport.link_latency_s = options.link_spec.latency_s;
  return transport;
}

absl::StatusOr<DistOptions> MakeDistOptions(const TrainOptions& options,
                                            const std::string& job_id) {
  DistOptions dist;
  dist.job_id = job_id;
  if (!options.secret_file.empty()) {
    ASSIGN_OR_RETURN(dist.secret,
                     Secret::FromFile(options.secret_file, job_id));
  }
  dist.transport = TransportOptionsOf(options);
  dist.has_auto_connections =
      ParseConnections(options.connections).value_or(1) == kAutoConnections;
  dist.timing = TimingOf(options);
  dist.operation_timeout = FromSeconds(options.operation_timeout_s);
  dist.num_threads = options.threads;
  dist.chunk_elems = options.chunk_elems;
  dist.facts = NetworkVariables();
  return dist;
}

void PrintResults(const TrainOptions& options,
                  const std::vector<RunSummary>& results) {
  if (results.empty()) return;
  std::fputs("\n", stdout);
  std::fputs(SummaryTable(results).c_str(), stdout);
  const absl::Status written =
      WriteResults(options.out, results, options.command_line);
  if (!written.ok()) {
    std::fprintf(stderr, "telegrad-train: %s\n",
                 std::string(written.message()).c_str());
    return;
  }
  std::printf("\nWrote %s/report.html, summary.json and metrics.jsonl\n",
              options.out.c_str());
  std::fflush(stdout);
}

}  // namespace telegrad
