#include "absl/strings/str_cat.h"
#include "kvstore/ticket_state.h"

namespace telegrad {

absl::Status Ticket::Wait(TimePoint deadline) const {
  if (state_ == nullptr) {
    return absl::FailedPreconditionError("a ticket of no operation");
  }
  {
    MutexLock lock(&state_->mutex);
    while (!state_->is_done) {
      if (!state_->done_changed.WaitUntil(&state_->mutex, deadline) &&
          !state_->is_done && Clock::now() >= deadline) {
        break;
      }
    }
    if (state_->is_done) return state_->status;
  }
  return absl::DeadlineExceededError(
      state_->describe ? state_->describe() : "operation did not end in time");
}

bool Ticket::is_done() const {
  if (state_ == nullptr) return true;
  MutexLock lock(&state_->mutex);
  return state_->is_done;
}

}  // namespace telegrad
