#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"

namespace telegrad::perf {

// Of two ranks' results the one that says more: an error before success, and
// any other error before a lost or silent peer, which follows from it.
const absl::Status& MoreTelling(const absl::Status& a, const absl::Status& b);

// Further processes of this program, which end with it. One thread.
class Processes {
 public:
  Processes() = default;
  ~Processes();  // kills those that are left
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  // `words`: argv of the new process.
  absl::Status Start(const std::vector<std::string>& words);
  // Kills those that are left at `deadline`. The error is the most telling one
  // of the processes that did not end with 0.
  absl::Status AwaitAll(TimePoint deadline);

 private:
  std::vector<pid_t> running_;
};

}  // namespace telegrad::perf
