#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/socket.h"
#include "transport/node.h"

namespace telegrad {

// The result, of two processes' ones, that says more: an error before success,
// and any other error before a lost or silent peer, which follows from it.
const absl::Status& MoreTelling(const absl::Status& a, const absl::Status& b);

// From now on a new process is a fork that calls `main`, without loading the
// program's libraries again, which takes libtorch 0.6 s. Where a fork would
// lack something, threads that have started since or CUDA, the program is
// executed anew as before. Call it first thing in main, which then hears of no
// thread.
void AllowForks(int (*main)(int argc, char** argv));
// Whether a process that was started now would be one.
bool CanFork();

// Further processes of this program, which end with it. One thread.
class ChildProcesses {
 public:
  struct Child {
    NodeId id;
    pid_t pid = -1;
    UniqueFd reports;  // the reading end of its pipe
    bool has_ended = false;
    int wait_status = 0;

    bool was_killed() const;  // by a signal that was not ours
    // How it ended, with the exit code that its end means for the job.
    absl::Status Result() const;
  };

  ChildProcesses() = default;
  ~ChildProcesses() { KillAll(); }
  ChildProcesses(const ChildProcesses&) = delete;
  ChildProcesses& operator=(const ChildProcesses&) = delete;

  // `words`: argv of the new process, given the writing end of its pipe; called
  // in the new process, which has no signal blocked.
  absl::Status Start(
      NodeId id, const std::function<std::vector<std::string>(int fd)>& words);

  const std::vector<Child>& all() const { return all_; }
  bool all_ended() const;

  void CloseReports(size_t index) { all_[index].reports.Close(); }

  // Takes note of those that have ended.
  void Reap();
  // Until all have ended; kills those that are left at `deadline`. The most
  // telling result.
  absl::Status AwaitAll(TimePoint deadline);
  // What is left is killed, which counts as no result of its own.
  void KillAll();

 private:
  std::vector<Child> all_;
};

}  // namespace telegrad
