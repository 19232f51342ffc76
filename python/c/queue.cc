#include "python/c/queue.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/units.h"

using telegrad::Clock;
using telegrad::MutexLock;
using telegrad::TimePoint;
using telegrad::c::Give;
using telegrad::c::Operation;

absl::Status Operation::Wait() const {
  absl::Status first;
  for (const telegrad::Ticket& ticket : tickets) {
    first.Update(ticket.Wait(deadline));
  }
  return first;
}

telegrad_queue::~telegrad_queue() { CancelAll(); }

void telegrad_queue::Add(Operation operation) {
  const std::vector<telegrad::Ticket> tickets = operation.tickets;
  uint64_t id = 0;
  {
    MutexLock lock(&mutex_);
    id = ++last_;
    entries_[id] = {std::move(operation), tickets.size()};
  }
  for (const telegrad::Ticket& ticket : tickets) ticket.NotifyTo(tickets_, id);
}

std::optional<telegrad_queue::Done> telegrad_queue::Count(uint64_t id) {
  Operation ended;
  {
    MutexLock lock(&mutex_);
    const auto entry = entries_.find(id);
    if (entry == entries_.end()) return std::nullopt;  // it was too late
    if (--entry->second.num_left > 0) return std::nullopt;
    ended = std::move(entry->second.operation);
    entries_.erase(entry);
  }
  return End(std::move(ended));
}

telegrad_queue::Done telegrad_queue::End(Operation operation) {
  return {operation.tag, operation.Wait(), std::move(operation.verdict)};
}

std::optional<uint64_t> telegrad_queue::TakeLate(TimePoint* next) {
  MutexLock lock(&mutex_);
  const TimePoint now = Clock::now();
  for (const auto& [id, entry] : entries_) {
    if (entry.operation.deadline <= now) return id;
    *next = std::min(*next, entry.operation.deadline);
  }
  return std::nullopt;
}

std::optional<telegrad_queue::Done> telegrad_queue::Next(TimePoint deadline) {
  for (;;) {
    TimePoint until = deadline;
    if (const auto late = TakeLate(&until)) {
      Operation operation;
      {
        MutexLock lock(&mutex_);
        const auto entry = entries_.find(*late);
        if (entry == entries_.end()) continue;
        operation = std::move(entry->second.operation);
        entries_.erase(entry);
      }
      return End(std::move(operation));
    }
    if (const auto id = tickets_.Next(until)) {
      if (auto done = Count(*id)) return done;
    } else if (Clock::now() >= deadline) {
      return std::nullopt;
    }
  }
}

Operation telegrad_queue::Find(uint64_t tag) {
  Operation found{.deadline = TimePoint::max()};
  MutexLock lock(&mutex_);
  for (const auto& [id, entry] : entries_) {
    const Operation& each = entry.operation;
    if (each.tag != tag) continue;
    found.tickets.insert(found.tickets.end(), each.tickets.begin(),
                         each.tickets.end());
    found.deadline = std::min(found.deadline, each.deadline);
  }
  return found;
}

std::optional<absl::Status> telegrad_queue::WaitOn(uint64_t tag,
                                                   telegrad::Stream stream,
                                                   TimePoint deadline) {
  const Operation found = Find(tag);
  if (found.tickets.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "no operation with tag ", tag,
        " is in flight in this queue: wait before telegrad_queue_next gives "
        "it"));
  }
  for (const telegrad::Ticket& ticket : found.tickets) {
    const bool is_late =
        !ticket.WaitUntilQueued(std::min(deadline, found.deadline));
    if (is_late && Clock::now() < found.deadline) return std::nullopt;
  }
  absl::Status first;
  for (const telegrad::Ticket& ticket : found.tickets) {
    first.Update(ticket.WaitOn(stream, found.deadline));
  }
  return first;
}

void telegrad_queue::Cancel(uint64_t tag) {
  for (const telegrad::Ticket& ticket : Find(tag).tickets) ticket.Cancel();
}

void telegrad_queue::CancelAll() {
  std::vector<telegrad::Ticket> tickets;
  {
    MutexLock lock(&mutex_);
    for (const auto& [id, entry] : entries_) {
      tickets.insert(tickets.end(), entry.operation.tickets.begin(),
                     entry.operation.tickets.end());
    }
  }
  for (const telegrad::Ticket& ticket : tickets) ticket.Cancel();
}

extern "C" {

int32_t telegrad_queue_create(telegrad_queue** queue, telegrad_status* status) {
  if (queue == nullptr) {
    return Give(absl::InvalidArgumentError("queue is null"), status);
  }
  *queue = new telegrad_queue;
  return Give(absl::OkStatus(), status);
}

int32_t telegrad_queue_next(telegrad_queue* queue, double timeout_s,
                            uint64_t* tag, telegrad_status* status) {
  if (queue == nullptr) {
    return Give(absl::InvalidArgumentError("queue is null"), status);
  }
  if (const absl::Status forked = queue->owner().Check(); !forked.ok()) {
    return Give(forked, status);
  }
  const auto done = queue->Next(telegrad::c::After(timeout_s));
  if (!done.has_value()) return TELEGRAD_PENDING;
  if (tag != nullptr) *tag = done->tag;
  return Give(done->status, done->verdict.get(), status);
}

int32_t telegrad_queue_wait_on(telegrad_queue* queue, uint64_t tag,
                               uint64_t stream, double timeout_s,
                               telegrad_status* status) {
  if (queue == nullptr) {
    return Give(absl::InvalidArgumentError("queue is null"), status);
  }
  if (const absl::Status forked = queue->owner().Check(); !forked.ok()) {
    return Give(forked, status);
  }
  const auto result = queue->WaitOn(tag, {reinterpret_cast<void*>(stream)},
                                    telegrad::c::After(timeout_s));
  return result.has_value() ? Give(*result, status) : TELEGRAD_PENDING;
}

void telegrad_queue_cancel(telegrad_queue* queue, uint64_t tag) {
  if (queue != nullptr && queue->owner().is_here()) queue->Cancel(tag);
}

void telegrad_queue_free(telegrad_queue* queue) {
  if (queue != nullptr && queue->owner().is_here()) delete queue;
}

}  // extern "C"
