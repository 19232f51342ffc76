#include "kvstore/job/launch/child_processes.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/resource_limit.h"

namespace telegrad {
namespace {

// Whether a peer was lost, or is silent, which may have a cause elsewhere.
bool IsLoss(const absl::Status& status) {
  const ExitCode code = ExitCodeOf(status);
  return code == ExitCode::kPeerDied || code == ExitCode::kServerLost ||
         code == ExitCode::kTimeout;
}

ExitCode LossOf(Role role) {
  switch (role) {
    case Role::kServer:
      return ExitCode::kServerLost;
    case Role::kScheduler:
      return ExitCode::kSchedulerLost;
    default:
      return ExitCode::kPeerDied;
  }
}

// The numbers that name entries of a folder of /proc.
std::vector<int> NumbersIn(const char* folder) {
  std::vector<int> numbers;
  DIR* const entries = opendir(folder);
  if (entries == nullptr) return numbers;
  while (const dirent* const entry = readdir(entries)) {
    int number = 0;
    if (absl::SimpleAtoi(entry->d_name, &number)) numbers.push_back(number);
  }
  closedir(entries);
  return numbers;
}

size_t NumThreads() { return NumbersIn("/proc/self/task").size(); }

int (*fork_main)(int, char**) = nullptr;
size_t threads_at_start = 0;

// Leaves of this process what execve would leave.
void ForgetParent() {
  for (const int fd : NumbersIn("/proc/self/fd")) {
    const int flags = fcntl(fd, F_GETFD);
    if (flags >= 0 && (flags & FD_CLOEXEC) != 0) close(fd);
  }
  for (int number = 1; number < NSIG; ++number) {
    struct sigaction action = {};
    const bool is_caught = sigaction(number, nullptr, &action) == 0 &&
                           action.sa_handler != SIG_IGN;
    if (is_caught) signal(number, SIG_DFL);
  }
}

[[noreturn]] void Become(std::vector<std::string> words, bool forks) {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  if (forks) {
    ForgetParent();
    const int code = fork_main(static_cast<int>(words.size()), argv.data());
    std::cout.flush();
    std::fflush(nullptr);
    _exit(code);  // what libraries have to end is the parent's
  }
  execv("/proc/self/exe", argv.data());
  std::perror("exec");
  _exit(127);
}

}  // namespace

void AllowForks(int (*main)(int argc, char** argv)) {
  fork_main = main;
  threads_at_start = NumThreads();
}

// A thread is not there in a fork, and what it had locked stays locked. Those
// of libraries that were there before main know of forks (OpenBLAS).
bool CanFork() {
  if (fork_main == nullptr || NumThreads() > threads_at_start) return false;
  void* const cuda = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (cuda != nullptr) dlclose(cuda);
  return cuda == nullptr;
}

const absl::Status& MoreTelling(const absl::Status& a, const absl::Status& b) {
  if (a.ok()) return b;
  return !b.ok() && IsLoss(a) && !IsLoss(b) ? b : a;
}

bool ChildProcesses::Child::was_killed() const {
  return has_ended && WIFSIGNALED(wait_status);
}

absl::Status ChildProcesses::Child::Result() const {
  if (was_killed()) {
    return WithExitCode(LossOf(id.role),
                        absl::AbortedError(absl::StrCat(
                            ToString(id), " (process ", pid,
                            ") was killed by signal ", WTERMSIG(wait_status))));
  }
  const int code = WEXITSTATUS(wait_status);
  if (!has_ended || code == 0) return absl::OkStatus();
  return WithExitCode(
      static_cast<ExitCode>(code),
      absl::AbortedError(absl::StrCat(ToString(id), " (process ", pid,
                                      ") ended with ", code)));
}

absl::Status ChildProcesses::Start(
    NodeId id, const std::function<std::vector<std::string>(int fd)>& words) {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) {
    return SystemError("pipe", errno);
  }
  UniqueFd reading(fds[0]);
  const UniqueFd writing(fds[1]);
  const bool forks = CanFork();
  std::fflush(nullptr);  // else it is written twice
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) {
    return TooManyTasks("fork", errno);
  }
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    Become(words(writing.get()), forks);
  }
  all_.push_back({.id = id, .pid = pid, .reports = std::move(reading)});
  return absl::OkStatus();
}

bool ChildProcesses::all_ended() const {
  return absl::c_all_of(all_, [](const Child& one) { return one.has_ended; });
}

void ChildProcesses::Reap() {
  for (Child& child : all_) {
    int status = 0;
    if (child.has_ended || waitpid(child.pid, &status, WNOHANG) != child.pid) {
      continue;
    }
    child.has_ended = true;
    child.wait_status = status;
  }
}

absl::Status ChildProcesses::AwaitAll(TimePoint deadline) {
  for (Reap(); !all_ended() && Clock::now() < deadline; Reap()) {
    poll(nullptr, 0, 2);
  }
  for (const Child& child : all_) {
    if (!child.has_ended) kill(child.pid, SIGKILL);
  }
  absl::Status worst;
  for (Child& child : all_) {
    if (!child.has_ended) (void)waitpid(child.pid, &child.wait_status, 0);
    child.has_ended = true;
    worst = MoreTelling(worst, child.Result());
  }
  return worst;
}

void ChildProcesses::KillAll() {
  for (const Child& child : all_) {
    if (!child.has_ended) kill(child.pid, SIGKILL);
  }
  for (Child& child : all_) {
    if (!child.has_ended) (void)waitpid(child.pid, nullptr, 0);
    child.has_ended = true;
    child.reports.Close();
  }
}

}  // namespace telegrad
