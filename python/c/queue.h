#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "kvstore/ticket.h"
#include "python/c/status.h"

namespace telegrad::c {

// Operations over lists of keys, each one ticket a key.
struct Operation {
  uint64_t tag = 0;
  std::vector<Ticket> tickets = {};
  TimePoint deadline = {};
  std::shared_ptr<Verdict> verdict = nullptr;  // may be null

  // When all are done or the deadline has passed, which cancels the others: the
  // first error.
  absl::Status Wait() const;
};

}  // namespace telegrad::c

// Thread-safe, but for one thread at a time in Next.
struct telegrad_queue {
 public:
  ~telegrad_queue();
  void Add(telegrad::c::Operation operation);
  struct Done {
    uint64_t tag = 0;
    absl::Status status;
    std::shared_ptr<telegrad::c::Verdict> verdict;
  };
  std::optional<Done> Next(telegrad::TimePoint deadline);
  // Ticket::WaitOn of that operation, which Next still gives; none when it is
  // not there by then.
  std::optional<absl::Status> WaitOn(uint64_t tag, telegrad::Stream stream,
                                     telegrad::TimePoint deadline);
  void Cancel(uint64_t tag);
  void CancelAll();
  const telegrad::c::Owner& owner() const { return owner_; }

 private:
  struct Entry {
    telegrad::c::Operation operation;
    size_t num_left = 0;
  };
  // Of the operations with that tag that are in flight.
  telegrad::c::Operation Find(uint64_t tag);
  // Of operations that have not ended in time; none: all have time.
  std::optional<uint64_t> TakeLate(telegrad::TimePoint* next);
  std::optional<Done> Count(uint64_t id);
  Done End(telegrad::c::Operation operation);

  telegrad::c::Owner owner_;
  const telegrad::CompletionQueue tickets_;  // their tags: of entries_
  telegrad::Mutex mutex_;
  uint64_t last_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, Entry> entries_ ABSL_GUARDED_BY(mutex_);
};
