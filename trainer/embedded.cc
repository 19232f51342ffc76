#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "trainer/cluster.h"
#include "trainer/report_pipe.h"
#include "transport/job/child_processes.h"

namespace telegrad {
namespace {

// After the first process ended badly the others end by themselves; who has not
// by then (it was stopped, say) is killed.
constexpr Duration kTeardownGrace = std::chrono::seconds(3);

// All processes of one run; kills what is left of them at its end.
class LocalCluster {
 public:
  LocalCluster(const TrainOptions& options, const PlannedRun& run, char** argv,
               int signal_fd, TrainObserver* observer)
      : options_(options),
        run_(run),
        argv_(argv),
        signal_fd_(signal_fd),
        observer_(observer),
        job_id_(absl::StrCat("local-", getpid(), "-", run.setting_index, "-",
                             run.seed)) {}

  // Runs to the end; returns the exit code for the whole.
  int Run();
  int64_t PeakMemory(Role role) const;

 private:
  bool Spawn(NodeId id);
  std::vector<std::string> WordsOf(NodeId id, int report_fd) const;
  bool WaitForScheduler();
  // Handles one round of events; false once a signal told us to stop.
  bool Step(Duration timeout);
  void AskForCheckpoint() const;
  // What child `index` has written; false at its end.
  bool ReadReport(size_t index);
  void Reap();
  FatalEvent Verdict() const;
  int Conclude() const;
  bool has_failed() const { return failed_at_ != TimePoint(); }

  const TrainOptions& options_;
  const PlannedRun& run_;
  char** const argv_;
  const int signal_fd_;
  TrainObserver* const observer_;
  const std::string job_id_;
  std::string scheduler_address_;
  ChildProcesses children_;
  std::vector<std::unique_ptr<ReportReader>> readers_;  // of each child
  TimePoint failed_at_;
  int stop_signal_ = 0;
};

bool LocalCluster::Spawn(NodeId id) {
  const absl::Status started = children_.Start(
      id, [this, id](int report_fd) { return WordsOf(id, report_fd); });
  if (!started.ok()) {
    std::fprintf(stderr, "telegrad-train: %s\n",
                 std::string(started.message()).c_str());
    return false;
  }
  const bool is_reporter = id == NodeId{Role::kWorker, 0};
  readers_.push_back(
      std::make_unique<ReportReader>(is_reporter ? observer_ : nullptr));
  return true;
}

// In the child: the same program with a title for ps and what it shall be.
std::vector<std::string> LocalCluster::WordsOf(NodeId id, int report_fd) const {
  signal(SIGINT, SIG_IGN);   // the launcher decides
  signal(SIGUSR1, SIG_IGN);  // until it is held
  fcntl(report_fd, F_SETFD, 0);
  // One BLAS thread per worker: workers share the cores.
  setenv("OMP_NUM_THREADS", "1", 0);
  setenv("OPENBLAS_NUM_THREADS", "1", 0);
  std::string title = absl::StrCat("telegrad-train: ", RoleName(id.role));
  if (id.role != Role::kScheduler) absl::StrAppend(&title, " ", id.rank);
  std::vector<std::string> words = {title};
  for (char** word = argv_ + 1; *word != nullptr; ++word) {
    words.emplace_back(*word);
  }
  for (const std::string& word :
       {absl::StrCat("--internal-role=", RoleName(id.role)),
        absl::StrCat("--internal-rank=", id.rank),
        absl::StrCat("--internal-scheduler=",
                     scheduler_address_.empty() ? "none" : scheduler_address_),
        absl::StrCat("--internal-setting=", run_.setting_index),
        absl::StrCat("--internal-seed=", run_.seed),
        absl::StrCat("--internal-report-fd=", report_fd),
        absl::StrCat("--internal-job=", job_id_)}) {
    words.push_back(word);
  }
  return words;
}

bool LocalCluster::WaitForScheduler() {
  const TimePoint deadline =
      Clock::now() + FromSeconds(options_.join_timeout_s);
  while (readers_[0]->address().empty()) {
    if (Clock::now() > deadline || has_failed() || !Step(FromSeconds(0.1))) {
      return false;
    }
  }
  scheduler_address_ = readers_[0]->address();
  return true;
}

// One worker asks the others.
void LocalCluster::AskForCheckpoint() const {
  for (const ChildProcesses::Child& child : children_.all()) {
    if (child.id == NodeId{Role::kWorker, 0} && !child.has_ended) {
      kill(child.pid, SIGUSR1);
    }
  }
}

bool LocalCluster::Step(Duration timeout) {
  std::vector<pollfd> fds = {{signal_fd_, POLLIN, 0}};
  for (const ChildProcesses::Child& child : children_.all()) {
    fds.push_back({child.reports.get(), POLLIN, 0});
  }
  const auto ms =
      std::chrono::duration_cast<std::chrono::milliseconds>(timeout).count();
  if (poll(fds.data(), fds.size(), static_cast<int>(ms)) < 0) return true;
  signalfd_siginfo info;
  while (read(signal_fd_, &info, sizeof(info)) == sizeof(info)) {
    if (info.ssi_signo == SIGUSR1) {
      AskForCheckpoint();
    } else if (info.ssi_signo != SIGCHLD) {
      stop_signal_ = static_cast<int>(info.ssi_signo);
      return false;
    }
  }
  for (size_t i = 0; i < readers_.size(); ++i) {
    if (fds[i + 1].revents != 0 && !ReadReport(i)) children_.CloseReports(i);
  }
  Reap();
  return true;
}

bool LocalCluster::ReadReport(size_t index) {
  char bytes[65536];
  const ssize_t count =
      read(children_.all()[index].reports.get(), bytes, sizeof(bytes));
  if (count > 0) readers_[index]->Feed({bytes, static_cast<size_t>(count)});
  return count > 0 || (count < 0 && errno == EINTR);
}

void LocalCluster::Reap() {
  children_.Reap();
  for (size_t i = 0; i < readers_.size(); ++i) {
    const ChildProcesses::Child& child = children_.all()[i];
    if (!child.has_ended) continue;
    while (child.reports.is_open() && ReadReport(i)) {
    }
    children_.CloseReports(i);
    if (!child.Result().ok() && !has_failed()) failed_at_ = Clock::now();
  }
}

// What survivors said, the scheduler first; else how the first one ended.
FatalEvent LocalCluster::Verdict() const {
  for (const auto& reader : readers_) {
    const std::optional<FatalEvent>& fatal = reader->fatal();
    if (fatal.has_value() && fatal->code != ExitCode::kFenced) return *fatal;
  }
  FatalEvent event{.code = ExitCode::kInternal};
  event.message = absl::StrCat("run '", run_.label, "' ended early");
  absl::Status worst;
  for (const ChildProcesses::Child& child : children_.all()) {
    worst = MoreTelling(worst, child.Result());
    if (!child.was_killed()) continue;
    event.dead.push_back(absl::StrCat(ToString(child.id), ":", child.pid));
  }
  if (!worst.ok()) event.code = ExitCodeOf(worst);
  return event;
}

// The exit code; after a failure with the launcher's own line.
int LocalCluster::Conclude() const {
  if (stop_signal_ != 0) return 128 + stop_signal_;
  if (!has_failed()) return 0;
  FatalEvent event = Verdict();
  event.self = "launcher";
  std::fprintf(stderr, "%s\n", FatalLine(event).c_str());
  return static_cast<int>(event.code);
}

int LocalCluster::Run() {
  // A store of one process has nobody to meet.
  const bool is_alone = options_.servers == 0 && !options_.hosts_parts;
  bool is_up = is_alone || (Spawn({Role::kScheduler, 0}) && WaitForScheduler());
  for (int rank = 0; is_up && rank < options_.servers; ++rank) {
    is_up = Spawn({Role::kServer, rank});
  }
  for (int rank = 0; is_up && rank < options_.workers; ++rank) {
    is_up = Spawn({Role::kWorker, rank});
  }
  while (is_up && !children_.all_ended()) {
    if (!Step(FromSeconds(0.2))) break;
    if (has_failed() && Clock::now() - failed_at_ > kTeardownGrace) break;
  }
  children_.KillAll();
  if (!is_up && !has_failed()) failed_at_ = Clock::now();
  return Conclude();
}

int64_t LocalCluster::PeakMemory(Role role) const {
  int64_t peak = 0;
  for (size_t i = 0; i < readers_.size(); ++i) {
    if (children_.all()[i].id.role == role) {
      peak = std::max(peak, readers_[i]->peak_memory_bytes());
    }
  }
  return peak;
}

int OpenSignalFd() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGCHLD, SIGUSR1}) {
    sigaddset(&set, number);
  }
  sigprocmask(SIG_BLOCK, &set, nullptr);
  return signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

}  // namespace

int RunEmbedded(const TrainOptions& options, char** argv) {
  const int signal_fd = OpenSignalFd();
  std::vector<RunSummary> results;
  const auto plural = [](int count, const char* what) {
    return absl::StrCat(count, " ", what, count == 1 ? "" : "s");
  };
  const std::string servers =
      options.hosts_parts ? "" : plural(options.servers, "server") + " and ";
  const LaboratoryOptions& laboratory = options.laboratory;
  const std::string processes =
      laboratory.emulate_workers > 0
          ? absl::StrCat(plural(laboratory.emulate_workers, "worker"), " and ",
                         plural(laboratory.emulated_servers, "server"),
                         ", emulated in one process")
      : options.servers == 0 && !options.hosts_parts
          ? absl::StrCat("one process with ", plural(options.devices, "device"))
          : absl::StrCat("a scheduler", servers.empty() ? " and " : ", ",
                         servers, plural(options.workers, "worker"),
                         ", each a process of this host");
  const bool is_json = options.laboratory.log_json;
  if (!is_json) {
    std::printf("%s on %s: %s\n", options.network.c_str(),
                options.benchmark ? "synthetic data" : options.data.c_str(),
                processes.c_str());
  }
  std::fflush(stdout);
  int code = 0;
  for (const PlannedRun& run : PlanRuns(options)) {
    ConsoleObserver observer(run.label,
                             is_json ? ConsoleObserver::Style::kJson
                                     : ConsoleObserver::Style::kBarOnTerminal);
    LocalCluster cluster(options, run, argv, signal_fd, &observer);
    code = cluster.Run();
    if (code != 0 || !observer.has_summary()) {
      if (code == 0) code = static_cast<int>(ExitCode::kInternal);
      break;
    }
    observer.summary().server_peak_bytes = cluster.PeakMemory(Role::kServer);
    results.push_back(observer.summary());
  }
  close(signal_fd);
  if (const absl::Status printed = PrintResults(options, results);
      !printed.ok()) {
    std::fprintf(stderr, "telegrad-train: %s\n",
                 std::string(printed.message()).c_str());
    if (code == 0) code = static_cast<int>(ExitCodeOf(printed));
  }
  return code;
}

}  // namespace telegrad
