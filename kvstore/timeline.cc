#include "kvstore/timeline.h"

#include <chrono>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kvstore/trace_ring.h"

namespace telegrad {
namespace {

using Json = nlohmann::ordered_json;

template <typename Time>
double Microseconds(Time time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

// Asks both clocks several times, and takes the time at which the thread was
// interrupted least between them.
double AskBothClocks() {
  double least = std::numeric_limits<double>::max();
  double zero_us = 0;
  for (int i = 0; i < 16; ++i) {
    const double before = Microseconds(Clock::now().time_since_epoch());
    const double now =
        Microseconds(std::chrono::system_clock::now().time_since_epoch());
    const double after = Microseconds(Clock::now().time_since_epoch());
    if (after - before >= least) continue;
    least = after - before;
    zero_us = now - before;
  }
  return zero_us;
}

Json Metadata(const char* what, int pid, const char* field,
              const std::string& text) {
  return {{"ph", "M"}, {"name", what}, {"pid", pid}, {"args", {{field, text}}}};
}

std::string NameOf(const Timeline::Span& span,
                   const std::vector<std::string>& names) {
  if (span.key == Timeline::kNoKey) return "step";
  return absl::StrCat(span.key < names.size() ? names[span.key] : "?",
                      ", chunk ", span.chunk);
}

}  // namespace

// It is asked once, so that all traces of a process fit to each other.
double ZeroOfClockUs() {
  static const double zero_us = AskBothClocks();
  return zero_us;
}

Timeline::Timeline() = default;
Timeline::~Timeline() = default;

void Timeline::KeepLast(std::unique_ptr<TraceRing> ring) {
  MutexLock lock(&mutex_);
  last_ = std::move(ring);
  keeps_last_ = last_ != nullptr;
}

void Timeline::ForgetLast() {
  MutexLock lock(&mutex_);
  if (last_ != nullptr) last_->Remove();
  last_ = nullptr;
  keeps_last_ = false;
}

void Timeline::Note(const Span& span) {
  MutexLock lock(&mutex_);
  if (last_ != nullptr) last_->Note(span);
  if (!is_on_) return;
  if (spans_.size() < kMostSpans) {
    spans_.push_back(span);
  } else {
    ++num_left_out_;
  }
}

std::vector<Timeline::Span> Timeline::Take(uint64_t* num_left_out) {
  MutexLock lock(&mutex_);
  *num_left_out = std::exchange(num_left_out_, 0);
  return std::exchange(spans_, {});
}

std::string ChromeTrace(std::span<const Timeline::Span> spans, int pid,
                        const std::string& process,
                        const std::vector<std::string>& names,
                        uint64_t num_left_out) {
  const double zero_us = ZeroOfClockUs();
  Json events = Json::array();
  events.push_back(Metadata("process_name", pid, "name", process));
  const auto add_row = [&](size_t row, const std::string& name) {
    Json event = Metadata("thread_name", pid, "name", name);
    event["tid"] = row;
    events.push_back(std::move(event));
  };
  for (size_t key = 0; key < names.size(); ++key) add_row(key, names[key]);
  // Rows of chunks, and of what has no key.
  std::map<std::pair<Key, uint32_t>, size_t> rows;
  for (const Timeline::Span& span : spans) {
    const bool is_whole =
        span.chunk == Timeline::kWhole && span.key < names.size();
    size_t row = span.key;
    if (!is_whole) {
      const auto [found, is_new] =
          rows.try_emplace({span.key, span.chunk}, names.size() + rows.size());
      row = found->second;
      if (is_new) add_row(row, NameOf(span, names));
    }
    events.push_back(
        {{"ph", "X"},
         {"name", span.what},
         {"pid", pid},
         {"tid", row},
         {"ts", zero_us + Microseconds(span.begin.time_since_epoch())},
         {"dur", Microseconds(span.end - span.begin)}});
  }
  if (num_left_out > 0) {
    events.push_back(
        Metadata("process_labels", pid, "labels",
                 absl::StrCat(num_left_out, " spans are left out")));
  }
  return events.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace telegrad
