#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"

namespace telegrad::perf {

// Further processes of this program, which end with it. One thread.
class Processes {
 public:
  Processes() = default;
  ~Processes();  // kills those that are left
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  // `words`: argv of the new process.
  absl::Status Start(const std::vector<std::string>& words);
  // Kills those that are left at `deadline`. The error is that of the first
  // process that did not end with 0.
  absl::Status AwaitAll(TimePoint deadline);

 private:
  std::vector<pid_t> running_;
};

}  // namespace telegrad::perf
