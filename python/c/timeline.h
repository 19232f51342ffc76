#pragma once

#include <cstdint>
#include <map>
#include <thread>

#include "base/clock.h"
#include "base/mutex.h"
#include "kvstore/ticket.h"
#include "kvstore/timeline.h"

namespace telegrad::c {

// Notes in a timeline when operations begin and end, on a thread of its own.
// Thread-safe.
class OperationEnds {
 public:
  explicit OperationEnds(Timeline& timeline);
  ~OperationEnds();

  // `what` is a literal.
  void Await(Key key, const char* what, TimePoint begin, const Ticket& ticket);

 private:
  void Run();

  Timeline& timeline_;
  const CompletionQueue done_;  // their tags: of open_
  Mutex mutex_;
  uint64_t last_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, Timeline::Span> open_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace telegrad::c
