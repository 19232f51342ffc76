#include "python/c/timeline.h"

#include <utility>

#include "base/start_thread.h"

namespace telegrad::c {
namespace {

constexpr uint64_t kStop = 0;  // no tag of an operation

}  // namespace

OperationEnds::OperationEnds(Timeline& timeline, size_t most)
    : timeline_(timeline),
      most_(most),
      thread_(StartThread([this] { Run(); })) {}

OperationEnds::~OperationEnds() {
  Ticket().NotifyTo(done_, kStop);
  thread_.join();
}

void OperationEnds::Run() {
  for (;;) {
    const auto tag = done_.Next(Clock::now() + std::chrono::seconds(1));
    if (!tag.has_value()) continue;
    if (*tag == kStop) return;
    Timeline::Span span;
    {
      MutexLock lock(&mutex_);
      span = open_.extract(*tag).mapped();
    }
    span.end = Clock::now();
    timeline_.Note(span);
  }
}

void OperationEnds::Await(Key key, const char* what, TimePoint begin,
                          const Ticket& ticket) {
  uint64_t tag = 0;
  {
    MutexLock lock(&mutex_);
    if (open_.size() >= most_) {
      ++num_left_out_;
      return;
    }
    tag = ++last_;
    open_[tag] = {.key = key, .what = what, .begin = begin};
  }
  ticket.NotifyTo(done_, tag);
}

uint64_t OperationEnds::TakeNumLeftOut() {
  MutexLock lock(&mutex_);
  return std::exchange(num_left_out_, 0);
}

}  // namespace telegrad::c
