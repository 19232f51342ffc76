#include "transport/job/child_processes.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "base/exit_code.h"

namespace telegrad {
namespace {

// Of a peer, or its silence, which may have a cause elsewhere.
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

[[noreturn]] void Become(std::vector<std::string> words) {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  execv("/proc/self/exe", argv.data());
  std::perror("exec");
  _exit(127);
}

}  // namespace

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
    return absl::ResourceExhaustedError(
        absl::StrCat("pipe: ", std::strerror(errno)));
  }
  UniqueFd reading(fds[0]);
  const UniqueFd writing(fds[1]);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("fork: ", std::strerror(errno)));
  }
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    Become(words(writing.get()));
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
