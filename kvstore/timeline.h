#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "kvstore/options.h"

namespace telegrad {

class TraceRing;  // kvstore/trace_ring.h

// Workers and servers make notes of three steps of a training. These are not
// the first ones, which take longer than the others.
constexpr int64_t kFirstNotedStep = 5;
constexpr int64_t kNumNotedSteps = 3;

// When what happened to the tensors of this process. Notes nothing until it is
// switched on. Thread-safe.
class Timeline {
 public:
  // Marks of a span for a whole tensor, and for no tensor.
  static constexpr uint32_t kWhole = UINT32_MAX;
  static constexpr Key kNoKey = UINT32_MAX;

  struct Span {
    Key key = kNoKey;
    uint32_t chunk = kWhole;
    const char* what = "";  // a literal
    TimePoint begin = {};
    TimePoint end = {};
  };

  Timeline();
  ~Timeline();

  void Switch(bool is_on) { is_on_ = is_on; }
  // From now on every span goes to `ring`, too, whether it is switched on or
  // not.
  void KeepLast(std::unique_ptr<TraceRing> ring);
  // The run has ended well: nobody needs what is kept.
  void ForgetLast();
  bool is_on() const {
    return is_on_.load(std::memory_order_relaxed) ||
           keeps_last_.load(std::memory_order_relaxed);
  }
  // Beyond kMostSpans that nobody has taken it is left out.
  void Note(const Span& span);
  // What was noted, which is forgotten; and how many were left out.
  std::vector<Span> Take(uint64_t* num_left_out);

  static constexpr size_t kMostSpans = size_t{1} << 20;

 private:
  std::atomic<bool> is_on_{false};
  std::atomic<bool> keeps_last_{false};
  Mutex mutex_;
  std::unique_ptr<TraceRing> last_ ABSL_GUARDED_BY(mutex_);
  std::vector<Span> spans_ ABSL_GUARDED_BY(mutex_);
  uint64_t num_left_out_ ABSL_GUARDED_BY(mutex_) = 0;
};

// `timeline` may be null. The span ends now.
inline void NoteSpan(Timeline* timeline, Key key, uint32_t chunk,
                     const char* what, TimePoint begin) {
  if (timeline == nullptr || !timeline->is_on()) return;
  timeline->Note({key, chunk, what, begin, Clock::now()});
}

// Microseconds since 1970 at Clock's zero, so that processes have one time.
double ZeroOfClockUs();

// Chrome's trace events, an array of JSON: of the process `pid`, called
// `process`, with a row for each key, each chunk that has spans of its own, and
// for what has no key. `names` by key; times are microseconds since 1970.
std::string ChromeTrace(std::span<const Timeline::Span> spans, int pid,
                        const std::string& process,
                        const std::vector<std::string>& names,
                        uint64_t num_left_out);

}  // namespace telegrad
