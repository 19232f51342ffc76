#include "base/log.h"

#include <unistd.h>

#include <atomic>

#include "absl/strings/str_format.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/output.h"

namespace telegrad {
namespace {

// The one process-wide state: where lines go is a property of the process.
struct LogState {
  Mutex mutex;
  std::string name ABSL_GUARDED_BY(mutex);
  std::atomic<Severity> threshold{Severity::kInfo};
  const TimePoint start = Clock::now();
};

LogState& State() {
  static LogState* state = new LogState;  // outlives every thread
  return *state;
}

}  // namespace

void SetLogName(absl::string_view name) {
  MutexLock lock(&State().mutex);
  State().name = std::string(name);
}

std::string LogName() {
  MutexLock lock(&State().mutex);
  return State().name;
}

void SetLogThreshold(Severity severity) { State().threshold = severity; }

void Log(Severity severity, absl::string_view text) {
  LogState& state = State();
  if (severity < state.threshold.load()) return;
  const char letter = "IWE"[static_cast<int>(severity)];
  const std::string name = LogName();
  const std::string line =
      absl::StrFormat("%c %.6f%s%s] %s\n", letter, SecondsSince(state.start),
                      name.empty() ? "" : " ", name, text);
  WriteWithin(STDERR_FILENO, line, std::chrono::seconds(1));
}

}  // namespace telegrad
