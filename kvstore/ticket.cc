#include "kvstore/ticket.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "kvstore/ticket_state.h"

namespace telegrad {

CompletionQueue::CompletionQueue() : core_(std::make_shared<Core>()) {}

std::optional<uint64_t> CompletionQueue::Next(TimePoint deadline) const {
  MutexLock lock(&core_->mutex);
  while (core_->tags.empty()) {
    if (Clock::now() >= deadline) return std::nullopt;
    core_->changed.WaitUntil(&core_->mutex, deadline);
  }
  const uint64_t tag = core_->tags.front();
  core_->tags.pop_front();
  return tag;
}

void Ticket::State::Finish(const absl::Status& result) {
  decltype(queues) waiting;
  {
    MutexLock lock(&mutex);
    if (is_done) return;
    is_done = true;
    status = result;
    waiting.swap(queues);
  }
  done_changed.NotifyAll();
  for (const auto& [queue, tag] : waiting) queue->Add(tag);
}

void Ticket::State::Queued() {
  {
    MutexLock lock(&mutex);
    is_under_way = true;
  }
  done_changed.NotifyAll();
}

bool Ticket::State::is_queued() {
  MutexLock lock(&mutex);
  return is_under_way || is_done;
}

void AwaitRelease(WorkerGroup& group, const std::shared_ptr<Ticket::State>& of,
                  const std::function<bool(TimePoint)>& release_by) {
  constexpr auto kTick = std::chrono::milliseconds(10);
  if (release_by(Clock::now() + kCancelGrace)) return;
  group.Fail(
      WithExitCode(ExitCode::kTimeout,
                   absl::DeadlineExceededError(absl::StrCat(
                       Ticket(of).Missing(), ", nor when it was cancelled"))));
  while (!release_by(Clock::now())) {
    if (Ticket(of).WaitUntil(Clock::now() + kTick)) return;
  }
}

void AwaitQueued(const std::shared_ptr<Ticket::State>& before) {
  if (!before->is_queued()) return;
  Ticket(before).WaitUntil(Clock::now() + kCancelGrace);
}

Ticket FinishedTicket(const absl::Status& status) {
  auto state = std::make_shared<Ticket::State>();
  state->Finish(status);
  return Ticket(std::move(state));
}

bool Ticket::WaitUntil(TimePoint deadline) const {
  if (state_ == nullptr) return true;
  MutexLock lock(&state_->mutex);
  while (!state_->is_done) {
    if (Clock::now() >= deadline) return false;
    state_->done_changed.WaitUntil(&state_->mutex, deadline);
  }
  return true;
}

bool Ticket::WaitUntilQueued(TimePoint deadline) const {
  if (state_ == nullptr || state_->wait_on == nullptr) {
    return WaitUntil(deadline);
  }
  if (state_->hurry && !state_->is_queued()) state_->hurry();
  MutexLock lock(&state_->mutex);
  while (!state_->is_done && !state_->is_under_way) {
    if (Clock::now() >= deadline) return false;
    state_->done_changed.WaitUntil(&state_->mutex, deadline);
  }
  return true;
}

absl::Status Ticket::Wait(TimePoint deadline) const {
  if (state_ == nullptr) {
    return absl::FailedPreconditionError("a ticket of no operation");
  }
  if (state_->hurry && !state_->is_queued()) state_->hurry();
  if (!WaitUntil(deadline)) {
    const std::string missing =
        state_->describe ? state_->describe() : "operation did not end in time";
    if (state_->release) state_->release();
    state_->Finish(absl::DeadlineExceededError(missing));
  }
  MutexLock lock(&state_->mutex);
  return state_->status;
}

absl::Status Ticket::WaitOn(Stream stream, TimePoint deadline) const {
  if (state_ == nullptr || state_->wait_on == nullptr) return Wait(deadline);
  if (!WaitUntilQueued(deadline) || is_done()) return Wait(deadline);
  if (state_->wait_on(stream)) return absl::OkStatus();
  // The device has failed: the operation's end says how.
  const absl::Status end = Wait(deadline);
  return end.ok() ? absl::InternalError("a stream cannot wait for the result")
                  : end;
}

bool Ticket::is_done() const { return WaitUntil(TimePoint()); }

void Ticket::Cancel() const {
  if (is_done()) return;
  const std::string missing = Missing();
  if (state_->release) state_->release();
  state_->Finish(absl::CancelledError(missing));
}

std::string Ticket::Missing() const {
  if (state_ == nullptr) return "";
  return state_->describe ? state_->describe() : "an operation";
}

void Ticket::NotifyTo(const CompletionQueue& queue, uint64_t tag) const {
  if (state_ != nullptr) {
    MutexLock lock(&state_->mutex);
    if (!state_->is_done) {
      state_->queues.emplace_back(queue.core_, tag);
      return;
    }
  }
  queue.core_->Add(tag);
}

}  // namespace telegrad
