#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/socket.h"
#include "base/status_macros.h"
#include "kernels/dispatch.h"
#include "kvstore/job/flight/flight_log.h"
#include "kvstore/job/launch/child_processes.h"
#include "kvstore/tuning/calibration_cache.h"
#include "topology/system_root.h"
#include "trainer/checkpoint/checkpointing.h"
#include "trainer/data/dataset.h"
#include "trainer/flags/profile.h"
#include "trainer/flags/training_flags.h"
#include "trainer/launch/cluster.h"
#include "trainer/launch/finished_runs.h"
#include "trainer/launch/local_cluster.h"
#include "trainer/networks/framework.h"

namespace telegrad {
namespace {

constexpr int kPollMs = 100;

ConsoleObserver::Style StyleOf(const LaboratoryOptions& laboratory) {
  return laboratory.log_json   ? ConsoleObserver::Style::kJson
         : laboratory.jobs > 1 ? ConsoleObserver::Style::kLines
                               : ConsoleObserver::Style::kBarOnTerminal;
}

void PrintError(absl::string_view text) {
  std::fprintf(stderr, "telegrad-train: %s\n", std::string(text).c_str());
}

UniqueFd OpenSignalFd(sigset_t* before) {
  sigset_t set;
  sigemptyset(&set);
  for (const int number :
       {SIGINT, SIGTERM, SIGHUP, SIGCHLD, SIGUSR1, SIGUSR2}) {
    sigaddset(&set, number);
  }
  sigprocmask(SIG_BLOCK, &set, before);
  return UniqueFd(signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
}

// Runs of a comparison, --jobs at a time, until all have ended or one failed.
class Launcher {
 public:
  Launcher(const TrainOptions& options, char** argv, Output& display,
           FinishedRuns& finished)
      : options_(options),
        argv_(argv),
        display_(display),
        finished_(finished),
        missing_(finished.Missing()) {}

  ~Launcher();

  // The exit code for all.
  int Run();
  // The fatal line, where there is one.
  const std::string& last_word() const { return last_word_; }

 private:
  struct Active {
    ComparedRun run;
    ConsoleObserver observer;
    LocalCluster cluster;
    size_t jobs = 1;  // most at the same time
  };

  bool is_over() const {
    return active_.empty() && (code_ != 0 || next_ == missing_.size());
  }
  void StartMore();
  void AwaitEvents();
  void TakeSignals();
  void ConcludeEnded();
  void Keep(Active& active);
  void EndWith(FatalEvent event);

  const TrainOptions& options_;
  char** const argv_;
  Output& display_;
  FinishedRuns& finished_;
  const std::vector<ComparedRun> missing_;
  sigset_t mask_before_;
  const UniqueFd signals_ = OpenSignalFd(&mask_before_);
  size_t next_ = 0;  // the next of `missing_`
  std::vector<std::unique_ptr<Active>> active_;
  int code_ = 0;
  std::string last_word_;
};

// A signal from here on ends what waits for a reader.
Launcher::~Launcher() {
  TakeSignals();
  sigprocmask(SIG_SETMASK, &mask_before_, nullptr);
}

int Launcher::Run() {
  while (!is_over()) {
    StartMore();
    AwaitEvents();
    TakeSignals();
    ConcludeEnded();
  }
  return code_;
}

void Launcher::StartMore() {
  const auto most = static_cast<size_t>(options_.laboratory.jobs);
  const auto num_runs = static_cast<int>(finished_.wanted().size());
  while (active_.size() < most && next_ < missing_.size()) {
    const ComparedRun& run = missing_[next_++];
    FlightLogOf(options_, *run.setting, run.seed)->Forget();
    Active& active = *active_.emplace_back(new Active{
        .run = run,
        .observer = ConsoleObserver(
            display_,
            {.label = run.label,
             .number = num_runs - static_cast<int>(missing_.size() - next_),
             .count = num_runs,
             .jobs = options_.laboratory.jobs},
            StyleOf(options_.laboratory)),
        .cluster =
            LocalCluster(OptionsOf(options_, *run.setting), run, argv_)});
    active.cluster.Start(&active.observer);
  }
  for (const auto& each : active_) {
    each->jobs = std::max(each->jobs, active_.size());
  }
}

void Launcher::AwaitEvents() {
  std::vector<pollfd> fds = {{signals_.get(), POLLIN, 0}};
  std::vector<size_t> ends;
  for (const auto& each : active_) {
    each->cluster.AppendTo(fds);
    ends.push_back(fds.size());
  }
  display_.Flush();
  if (poll(fds.data(), fds.size(), kPollMs) < 0) return;
  size_t begin = 1;
  for (size_t i = 0; i < active_.size(); ++i) {
    active_[i]->cluster.Handle(std::span(fds).subspan(begin, ends[i] - begin));
    begin = ends[i];
  }
}

void Launcher::TakeSignals() {
  signalfd_siginfo info;
  while (read(signals_.get(), &info, sizeof(info)) == sizeof(info)) {
    if (info.ssi_signo == SIGUSR1) {
      for (const auto& each : active_) each->cluster.AskForCheckpoint();
    } else if (info.ssi_signo == SIGUSR2) {
      for (const auto& each : active_) each->cluster.AskForFlightRecords();
    } else if (info.ssi_signo != SIGCHLD && code_ == 0) {
      const auto number = static_cast<int>(info.ssi_signo);
      EndWith({.code = static_cast<ExitCode>(128 + number),
               .message = absl::StrCat("ended by SIG", sigabbrev_np(number))});
    }
  }
}

void Launcher::ConcludeEnded() {
  std::string failed;
  FatalEvent failure;
  for (size_t i = 0; i < active_.size();) {
    Active& active = *active_[i];
    if (!active.cluster.has_ended()) {
      ++i;
      continue;
    }
    if (active.observer.has_summary() && !active.cluster.has_failed()) {
      Keep(active);
    } else if (failed.empty()) {
      failure = active.cluster.Verdict();
      failure.message +=
          FlightLogOf(options_, *active.run.setting, active.run.seed)
              ->MentionIn(failure.message);
      failed = active.run.label;
    }
    active_.erase(active_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  if (failed.empty()) return;
  for (const auto& each : active_) {
    PrintError(absl::StrCat("run '", each->run.label,
                            "' is stopped, since run '", failed, "' failed"));
  }
  EndWith(std::move(failure));
}

void Launcher::Keep(Active& active) {
  RunSummary& summary = active.observer.summary();
  summary.server_peak_bytes = active.cluster.PeakMemory(Role::kServer);
  summary.jobs = static_cast<int>(active.jobs);
  summary.identity = SummaryOf(options_.laboratory.identity);
  finished_.Add(summary);
  const absl::Status written = finished_.Write();
  // After the last run PrintResults says it.
  if (!written.ok() && !finished_.Missing().empty()) {
    PrintError(written.message());
  }
}

void Launcher::EndWith(FatalEvent event) {
  for (const auto& each : active_) each->cluster.Stop();
  active_.clear();  // before the line: a bar is ended
  code_ = static_cast<int>(event.code);
  event.self = "launcher";
  const size_t num_runs = finished_.wanted().size();
  event.message += AdviceOn(event.code, options_,
                            num_runs - finished_.Missing().size(), num_runs);
  last_word_ = FatalLine(event) + "\n";
}

std::string DescribeProcesses(const TrainOptions& options) {
  const auto plural = [](int count, const char* what) {
    return absl::StrCat(count, " ", what, count == 1 ? "" : "s");
  };
  const LaboratoryOptions& laboratory = options.laboratory;
  if (laboratory.emulate_workers > 0) {
    return absl::StrCat(plural(laboratory.emulate_workers, "worker"), " and ",
                        plural(laboratory.emulated_servers, "server"),
                        ", emulated in one process");
  }
  if (options.servers == 0 && !options.hosts_parts) {
    return absl::StrCat("one process with ", plural(options.devices, "device"));
  }
  const std::string servers =
      options.hosts_parts ? "" : plural(options.servers, "server") + " and ";
  return absl::StrCat("a scheduler", servers.empty() ? " and " : ", ", servers,
                      plural(options.workers, "worker"),
                      ", each a process of this host");
}

// Where runs that were taken come from, and of what other machine.
void SayTaken(const TrainOptions& options, const FinishedRuns& finished,
              Output& display) {
  const std::string here = CpuModel(SysRoot::Live());
  for (const RunSummary& run : finished.all()) {
    std::string there = here;
    for (const EnvironmentFact& fact : run.environment) {
      if (fact.what == "processor") there = fact.value;
    }
    const bool is_elsewhere = there != here;
    ConsoleObserver observer(
        display, {.label = absl::StrCat(run.setting, ", seed ", run.seed)},
        StyleOf(options.laboratory));
    observer.OnLine(absl::StrCat(
        finished.IsWanted(run) ? "taken from " : "stays in ", options.out,
        "/summary.json", is_elsewhere ? ", made on another processor: " : "",
        is_elsewhere ? absl::Utf8SafeCEscape(there) : ""));
  }
}

// Tells of a comparison that was stopped and now begins anew, perhaps by
// mistake.
void SayWhatIsReplaced(const TrainOptions& options) {
  FinishedRuns there(options);
  if (!there.Take().ok()) return;
  const size_t num_wanted = there.wanted().size();
  const size_t num_missing = there.Missing().size();
  const auto is_wanted = [&](const RunSummary& run) {
    return there.IsWanted(run);
  };
  const bool stays = absl::c_all_of(there.all(), is_wanted);  // not moved aside
  if (!stays || num_missing == 0 || num_missing == num_wanted) return;
  std::printf(
      "%s has %zu of these %zu runs, to be replaced; --continue takes "
      "them\n",
      options.out.c_str(), num_wanted - num_missing, num_wanted);
}

// What processes are forked with: how kernels reach memory, which is measured,
// the framework and the data. Data that cannot be loaded are left to who says
// why not.
absl::Status PrepareForks(const TrainOptions& options) {
  if (!CanFork()) return absl::OkStatus();
  kernels::CpuKernels();
  if (IsProfile(options.network)) return absl::OkStatus();
  RETURN_IF_ERROR(LoadFramework().status());
  const auto spec = RequestedSpec(options);
  if (options.benchmark || !spec.ok()) return absl::OkStatus();
  KeepDataset(options.data, RequestedData(options, *spec)).IgnoreError();
  return absl::OkStatus();
}

}  // namespace

int RunEmbedded(const TrainOptions& options, char** argv) {
  const LaboratoryOptions& laboratory = options.laboratory;
  const auto out = HoldResultsFolder(options.out);
  // One setting alone has checkpoints.
  const auto checkpoint = HoldCheckpointFolder(
      OptionsOf(options, options.settings.front()), /*starts_members=*/true);
  FinishedRuns finished(options);
  absl::Status ready = out.ok() ? checkpoint.status() : out.status();
  if (ready.ok() && laboratory.continues) ready = finished.Take();
  if (!ready.ok()) {
    PrintError(ready.message());
    return static_cast<int>(ExitCodeOf(ready));
  }
  if (!laboratory.log_json) {
    std::printf(
        "%s on %s: %s%s\n", options.network.c_str(),
        options.benchmark ? "synthetic data" : options.data.c_str(),
        DescribeProcesses(options).c_str(),
        laboratory.jobs > 1
            ? absl::StrCat("; ", laboratory.jobs, " runs at a time").c_str()
            : "");
    if (!laboratory.continues) SayWhatIsReplaced(options);
  }
  std::fflush(stdout);
  if (!laboratory.continues) {
    const absl::StatusOr<std::string> moved = finished.MoveOthers();
    if (moved.ok() && !moved->empty()) PrintError(*moved);
    ready = moved.status();
  }
  Output display(STDOUT_FILENO);
  SayTaken(options, finished, display);
  if (ready.ok() && !finished.Missing().empty()) ready = PrepareForks(options);
  if (!ready.ok()) {
    PrintError(ready.message());
    return static_cast<int>(ExitCode::kUsage);
  }
  int code = 0;
  std::string last_word;
  {
    Launcher launcher(options, argv, display, finished);
    code = launcher.Run();
    last_word = launcher.last_word();
  }
  std::fputs(last_word.c_str(), stderr);
  if (const absl::Status printed =
          PrintResults(options, display, finished.all());
      !printed.ok()) {
    PrintError(printed.message());
    if (code == 0) code = static_cast<int>(ExitCodeOf(printed));
  }
  return code;
}

}  // namespace telegrad
