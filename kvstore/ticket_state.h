#pragma once

#include <functional>
#include <string>

#include "base/mutex.h"
#include "kvstore/kvstore.h"

namespace telegrad {

// Shared by a Ticket and the store that will finish it. Thread-safe.
struct Ticket::State {
  // Says what is missing; for a deadline's message. Called with no lock held.
  std::function<std::string()> describe;

  Mutex mutex;
  CondVar done_changed;
  bool is_done ABSL_GUARDED_BY(mutex) = false;
  absl::Status status ABSL_GUARDED_BY(mutex);

  // The first call counts.
  void Finish(const absl::Status& result) {
    {
      MutexLock lock(&mutex);
      if (is_done) return;
      is_done = true;
      status = result;
    }
    done_changed.NotifyAll();
  }
};

// A ticket that has ended already.
inline Ticket FinishedTicket(const absl::Status& status) {
  auto state = std::make_shared<Ticket::State>();
  state->Finish(status);
  return Ticket(std::move(state));
}

}  // namespace telegrad
