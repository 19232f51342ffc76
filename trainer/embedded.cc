#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "trainer/cluster.h"
#include "trainer/fatal_exit.h"
#include "trainer/report_pipe.h"

namespace telegrad {
namespace {

// After the first process ended badly the others end by themselves; who has not
// by then (it was stopped, say) is killed.
constexpr Duration kTeardownGrace = std::chrono::seconds(3);

struct Child {
  pid_t pid = -1;
  NodeId id;
  int report_fd = -1;
  std::unique_ptr<ReportReader> reader;
  bool has_ended = false;
  int wait_status = 0;
};

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
  ~LocalCluster() { KillAll(); }

  // Runs to the end; returns the exit code for the whole.
  int Run();
  int64_t PeakMemory(Role role) const;

 private:
  bool Spawn(NodeId id);
  [[noreturn]] void Exec(NodeId id, int report_fd);
  bool WaitForScheduler();
  // Handles one round of events; false once a signal told us to stop.
  bool Step(Duration timeout);
  void ReadReport(Child& child);
  void Reap();
  void KillAll();
  FatalEvent Verdict() const;
  int Conclude() const;
  bool has_failed() const { return failed_at_ != TimePoint(); }
  bool all_ended() const {
    return std::all_of(children_.begin(), children_.end(),
                       [](const Child& child) { return child.has_ended; });
  }

  const TrainOptions& options_;
  const PlannedRun& run_;
  char** const argv_;
  const int signal_fd_;
  TrainObserver* const observer_;
  const std::string job_id_;
  std::string scheduler_address_;
  std::vector<Child> children_;
  TimePoint failed_at_;
  int stop_signal_ = 0;
};

bool LocalCluster::Spawn(NodeId id) {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) {
    std::fprintf(stderr, "telegrad-train: pipe: %s\n", std::strerror(errno));
    return false;
  }
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) {
    std::fprintf(stderr, "telegrad-train: fork: %s\n", std::strerror(errno));
    close(fds[0]);
    close(fds[1]);
    return false;
  }
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    Exec(id, fds[1]);
  }
  close(fds[1]);
  const bool is_reporter = id == NodeId{Role::kWorker, 0};
  children_.push_back({.pid = pid,
                       .id = id,
                       .report_fd = fds[0],
                       .reader = std::make_unique<ReportReader>(
                           is_reporter ? observer_ : nullptr)});
  return true;
}

// In the child: the same program with a title for ps and what it shall be.
void LocalCluster::Exec(NodeId id, int report_fd) {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGINT, SIG_IGN);  // the launcher decides
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
        absl::StrCat("--internal-scheduler=", scheduler_address_),
        absl::StrCat("--internal-setting=", run_.setting_index),
        absl::StrCat("--internal-seed=", run_.seed),
        absl::StrCat("--internal-report-fd=", report_fd),
        absl::StrCat("--internal-job=", job_id_)}) {
    words.push_back(word);
  }
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  execv("/proc/self/exe", pointers.data());
  std::fprintf(stderr, "telegrad-train: exec: %s\n", std::strerror(errno));
  _exit(127);
}

bool LocalCluster::WaitForScheduler() {
  const TimePoint deadline =
      Clock::now() + FromSeconds(options_.join_timeout_s);
  while (children_[0].reader->address().empty()) {
    if (Clock::now() > deadline || has_failed() || !Step(FromSeconds(0.1))) {
      return false;
    }
  }
  scheduler_address_ = children_[0].reader->address();
  return true;
}

bool LocalCluster::Step(Duration timeout) {
  std::vector<pollfd> fds = {{signal_fd_, POLLIN, 0}};
  for (const Child& child : children_) {
    fds.push_back({child.report_fd, POLLIN, 0});
  }
  const auto ms =
      std::chrono::duration_cast<std::chrono::milliseconds>(timeout).count();
  if (poll(fds.data(), fds.size(), static_cast<int>(ms)) < 0) return true;
  signalfd_siginfo info;
  while (read(signal_fd_, &info, sizeof(info)) == sizeof(info)) {
    if (info.ssi_signo != SIGCHLD) {
      stop_signal_ = static_cast<int>(info.ssi_signo);
      return false;
    }
  }
  for (size_t i = 0; i < children_.size(); ++i) {
    if (fds[i + 1].revents != 0) ReadReport(children_[i]);
  }
  Reap();
  return true;
}

void LocalCluster::ReadReport(Child& child) {
  char bytes[65536];
  const ssize_t count = read(child.report_fd, bytes, sizeof(bytes));
  if (count > 0) {
    child.reader->Feed({bytes, static_cast<size_t>(count)});
    return;
  }
  if (count < 0 && errno == EINTR) return;
  close(child.report_fd);
  child.report_fd = -1;  // poll ignores it
}

void LocalCluster::Reap() {
  for (Child& child : children_) {
    int status = 0;
    if (child.has_ended || waitpid(child.pid, &status, WNOHANG) != child.pid) {
      continue;
    }
    while (child.report_fd >= 0) ReadReport(child);
    child.has_ended = true;
    child.wait_status = status;
    if (status != 0 && !has_failed()) failed_at_ = Clock::now();
  }
}

void LocalCluster::KillAll() {
  for (Child& child : children_) {
    if (!child.has_ended) kill(child.pid, SIGKILL);
  }
  for (Child& child : children_) {
    if (child.has_ended) continue;
    int status = 0;  // ours: it is no death to report
    waitpid(child.pid, &status, 0);
    child.has_ended = true;
  }
  for (Child& child : children_) {
    if (child.report_fd >= 0) close(child.report_fd);
    child.report_fd = -1;
  }
}

// What survivors said, the scheduler first; else how the first one ended.
FatalEvent LocalCluster::Verdict() const {
  for (const Child& child : children_) {
    const std::optional<FatalEvent>& fatal = child.reader->fatal();
    if (fatal.has_value() && fatal->code != ExitCode::kFenced) return *fatal;
  }
  FatalEvent event{.code = ExitCode::kInternal};
  event.message = absl::StrCat("run '", run_.label, "' ended early");
  for (const Child& child : children_) {
    const int status = child.wait_status;
    if (WIFEXITED(status) && WEXITSTATUS(status) != 0) {
      event.code = static_cast<ExitCode>(WEXITSTATUS(status));
      return event;
    }
    if (!WIFSIGNALED(status)) continue;
    event.dead.push_back(absl::StrCat(ToString(child.id), ":", child.pid));
    event.code = child.id.role == Role::kWorker   ? ExitCode::kPeerDied
                 : child.id.role == Role::kServer ? ExitCode::kServerLost
                                                  : ExitCode::kSchedulerLost;
  }
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
  bool is_up = Spawn({Role::kScheduler, 0}) && WaitForScheduler();
  for (int rank = 0; is_up && rank < options_.servers; ++rank) {
    is_up = Spawn({Role::kServer, rank});
  }
  for (int rank = 0; is_up && rank < options_.workers; ++rank) {
    is_up = Spawn({Role::kWorker, rank});
  }
  while (is_up && !all_ended()) {
    if (!Step(FromSeconds(0.2))) break;
    if (has_failed() && Clock::now() - failed_at_ > kTeardownGrace) break;
  }
  KillAll();
  if (!is_up && !has_failed()) failed_at_ = Clock::now();
  return Conclude();
}

int64_t LocalCluster::PeakMemory(Role role) const {
  int64_t peak = 0;
  for (const Child& child : children_) {
    if (child.id.role == role) {
      peak = std::max(peak, child.reader->peak_memory_bytes());
    }
  }
  return peak;
}

int OpenSignalFd() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) {
    sigaddset(&set, number);
  }
  sigprocmask(SIG_BLOCK, &set, nullptr);
  return signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

}  // namespace

int RunEmbedded(const TrainOptions& options, char** argv) {
  const int signal_fd = OpenSignalFd();
  std::vector<RunSummary> results;
  int code = 0;
  for (const PlannedRun& run : PlanRuns(options)) {
    ConsoleObserver observer(run.label, ConsoleObserver::Style::kBarOnTerminal);
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
  PrintResults(options, results);
  return code;
}

}  // namespace telegrad
