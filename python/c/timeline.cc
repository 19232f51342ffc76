#include "python/c/timeline.h"

#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

namespace telegrad::c {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kStop = 0;  // no tag of an operation

template <typename Time>
double Microseconds(Time time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

// Microseconds since 1970 at Clock's zero: processes have one time.
double ZeroOfClock() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return Microseconds(now) - Microseconds(Clock::now().time_since_epoch());
}

}  // namespace

Timeline::Timeline() : zero_us_(ZeroOfClock()), thread_([this] { Run(); }) {}

Timeline::~Timeline() {
  Ticket().NotifyTo(done_, kStop);
  thread_.join();
}

void Timeline::Run() {
  for (;;) {
    const auto tag = done_.Next(Clock::now() + std::chrono::seconds(1));
    if (!tag.has_value()) continue;
    if (*tag == kStop) return;
    const TimePoint now = Clock::now();
    MutexLock lock(&mutex_);
    auto span = open_.extract(*tag);
    span.mapped().end = now;
    ended_.push_back(span.mapped());
  }
}

void Timeline::Note(uint32_t key, const char* what, TimePoint begin,
                    const Ticket& ticket) {
  uint64_t tag = 0;
  {
    MutexLock lock(&mutex_);
    if (open_.size() + ended_.size() >= kMostSpans) {
      ++num_left_out_;
      return;
    }
    tag = ++last_;
    open_[tag] = {key, what, begin, {}};
  }
  ticket.NotifyTo(done_, tag);
}

std::string Timeline::Take(int pid, const std::vector<std::string>& names) {
  std::vector<Span> spans;
  uint64_t num_left_out = 0;
  {
    MutexLock lock(&mutex_);
    spans.swap(ended_);
    std::swap(num_left_out, num_left_out_);
  }
  Json events = Json::array();
  for (size_t key = 0; key < names.size(); ++key) {
    events.push_back({{"ph", "M"},
                      {"name", "thread_name"},
                      {"pid", pid},
                      {"tid", key},
                      {"args", {{"name", names[key]}}}});
  }
  for (const Span& span : spans) {
    events.push_back(
        {{"ph", "X"},
         {"name", span.what},
         {"pid", pid},
         {"tid", span.key},
         {"ts", zero_us_ + Microseconds(span.begin.time_since_epoch())},
         {"dur", Microseconds(span.end - span.begin)}});
  }
  if (num_left_out > 0) {
    events.push_back({{"ph", "M"},
                      {"name", "process_labels"},
                      {"pid", pid},
                      {"args",
                       {{"labels", std::to_string(num_left_out) +
                                       " operations are left out"}}}});
  }
  return events.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace telegrad::c
