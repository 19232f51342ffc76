#pragma once

#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "kvstore/job/path/worker_group.h"
#include "kvstore/ticket.h"

namespace telegrad {

struct CompletionQueue::Core {
  Mutex mutex;
  CondVar changed;
  std::deque<uint64_t> tags ABSL_GUARDED_BY(mutex);

  void Add(uint64_t tag) {
    {
      MutexLock lock(&mutex);
      tags.push_back(tag);
    }
    changed.NotifyAll();
  }
};

// Shared by a Ticket and the store that will finish it. Thread-safe.
struct Ticket::State {
  // Says what is missing; for a deadline's message. Called with no lock held.
  std::function<std::string()> describe = nullptr;
  // Takes the caller's memory away from the operation: returns when nothing
  // touches it. Called at most once at a time, with no lock held. Null: nothing
  // of the caller's is in use.
  std::function<void()> release = nullptr;

  // Makes a stream of the result's device wait for it; false if that fails.
  // Called after Queued. Null: the result is on the host.
  std::function<bool(Stream stream)> wait_on = nullptr;
  // Called when somebody waits for it, with no lock held. Null: nothing would
  // be sooner.
  std::function<void()> hurry = nullptr;

  // The first call counts.
  void Finish(const absl::Status& result);
  // What makes the result has been queued on its device: wait_on may be called.
  void Queued();
  bool is_queued();  // or done

  Mutex mutex;
  CondVar done_changed;
  bool is_done ABSL_GUARDED_BY(mutex) = false;
  bool is_under_way ABSL_GUARDED_BY(mutex) = false;  // Queued was called
  absl::Status status ABSL_GUARDED_BY(mutex);
  std::vector<std::pair<std::shared_ptr<CompletionQueue::Core>, uint64_t>>
      queues ABSL_GUARDED_BY(mutex);
};

// For a `release`: `release_by` says whether nothing of the caller's is in use
// any more, by then. Where it is after kCancelGrace the job ends, and this
// returns when the use does.
void AwaitRelease(WorkerGroup& group, const std::shared_ptr<Ticket::State>& of,
                  const std::function<bool(TimePoint)>& release_by);

// An operation of which the end is queued on its device is over in a moment:
// returns then, at once for others.
void AwaitQueued(const std::shared_ptr<Ticket::State>& before);

// A ticket that has ended already.
Ticket FinishedTicket(const absl::Status& status);

}  // namespace telegrad
