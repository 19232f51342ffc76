#pragma once

#include <cstddef>
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
  // Of more than `most` under way at a time the others are left out.
  explicit OperationEnds(Timeline& timeline,
                         size_t most = Timeline::kMostSpans);
  ~OperationEnds();

  // `what` is a literal.
  void Await(Key key, const char* what, TimePoint begin, const Ticket& ticket);
  // Since the last call.
  uint64_t TakeNumLeftOut();

 private:
  void Run();

  Timeline& timeline_;
  const size_t most_;
  const CompletionQueue done_;  // their tags: of open_
  Mutex mutex_;
  uint64_t num_left_out_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t last_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, Timeline::Span> open_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace telegrad::c
