#include "perf/network/processes.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"

namespace telegrad::perf {
namespace {

// Of a peer, or its silence, which may have a cause elsewhere.
bool IsLoss(const absl::Status& status) {
  const ExitCode code = ExitCodeOf(status);
  return code == ExitCode::kPeerDied || code == ExitCode::kServerLost ||
         code == ExitCode::kTimeout;
}

// Of a process that waitpid told `result` of.
absl::Status StatusOf(pid_t pid, int result) {
  if (!WIFEXITED(result)) {
    return WithExitCode(ExitCode::kPeerDied,
                        absl::AbortedError(absl::StrCat(
                            "process ", pid, " of another rank was killed")));
  }
  const int code = WEXITSTATUS(result);
  if (code == 0) return absl::OkStatus();
  return WithExitCode(
      static_cast<ExitCode>(code),
      absl::AbortedError(
          absl::StrCat("process ", pid, " of another rank ended with ", code)));
}

}  // namespace

const absl::Status& MoreTelling(const absl::Status& a, const absl::Status& b) {
  if (a.ok()) return b;
  return !b.ok() && IsLoss(a) && !IsLoss(b) ? b : a;
}

Processes::~Processes() {
  for (const pid_t pid : running_) {
    kill(pid, SIGKILL);
    (void)waitpid(pid, nullptr, 0);
  }
}

absl::Status Processes::Start(const std::vector<std::string>& words) {
  std::vector<std::string> copies = words;
  std::vector<char*> argv;
  for (std::string& word : copies) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("fork: ", std::strerror(errno)));
  }
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    execv("/proc/self/exe", argv.data());
    _exit(127);
  }
  running_.push_back(pid);
  return absl::OkStatus();
}

absl::Status Processes::AwaitAll(TimePoint deadline) {
  absl::Status worst;
  while (!running_.empty()) {
    int result = 0;
    const pid_t pid = running_.front();
    const pid_t ended = waitpid(pid, &result, WNOHANG);
    if (ended == 0 && Clock::now() < deadline) {
      poll(nullptr, 0, 2);
      continue;
    }
    if (ended == 0) {
      kill(pid, SIGKILL);
      (void)waitpid(pid, &result, 0);
    }
    running_.erase(running_.begin());
    worst = MoreTelling(worst, StatusOf(pid, result));
  }
  return worst;
}

}  // namespace telegrad::perf
