#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "kvstore/ticket.h"

namespace telegrad::c {

// Notes when operations begin and end, on a thread of its own. Thread-safe.
class Timeline {
 public:
  Timeline();
  ~Timeline();

  // `what` is a literal. Beyond kMostSpans that nobody has taken it is left
  // out.
  void Note(uint32_t key, const char* what, TimePoint begin,
            const Ticket& ticket);
  // Of those that have ended, which are forgotten: Chrome's trace events, an
  // array of JSON, of the process `pid` with a row for each key.
  std::string Take(int pid, const std::vector<std::string>& names);

  static constexpr size_t kMostSpans = size_t{1} << 20;

 private:
  struct Span {
    uint32_t key = 0;
    const char* what = "";
    TimePoint begin = {};
    TimePoint end = {};
  };
  void Run();

  const double zero_us_;
  const CompletionQueue done_;  // their tags: of open_
  Mutex mutex_;
  uint64_t last_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t num_left_out_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, Span> open_ ABSL_GUARDED_BY(mutex_);
  std::vector<Span> ended_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace telegrad::c
