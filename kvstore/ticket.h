#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/stream.h"

namespace telegrad {

// Where tickets tell that they are done (Ticket::NotifyTo), in that order.
// Thread-safe, cheap to copy; copies are one queue.
class CompletionQueue {
 public:
  struct Core;
  CompletionQueue();
  // The tag of the next ticket that is done; none when `deadline` passes first.
  std::optional<uint64_t> Next(TimePoint deadline) const;

 private:
  friend class Ticket;
  std::shared_ptr<Core> core_;
};

// The end of an asynchronous operation. Until then the store may read and write
// the caller's memory; afterwards it does not. Thread-safe, cheap to copy.
class Ticket {
 public:
  struct State;
  Ticket() = default;
  explicit Ticket(std::shared_ptr<State> state) : state_(std::move(state)) {}

  // The operation's status. When `deadline` passes first, the operation is
  // cancelled, and DeadlineExceeded names what is missing.
  absl::Status Wait(TimePoint deadline) const;
  // Waits as Wait does, but of results on a device only until the work that
  // makes them is queued there: `stream` waits for it, the host does not.
  // Without a device it is Wait.
  absl::Status WaitOn(Stream stream, TimePoint deadline) const;
  // Whether it is done by then; changes nothing.
  bool WaitUntil(TimePoint deadline) const;
  // Whether WaitOn returns at once from then on; changes nothing.
  bool WaitUntilQueued(TimePoint deadline) const;
  bool is_done() const;
  // Ends an operation that is not done, with status Cancelled. The memory is
  // the caller's again when this returns, after kCancelGrace at most. What was
  // pushed counts: the others are not disturbed, only the result is thrown
  // away. The key takes new operations once the old one's round is over. A
  // store whose peer does not let go of the memory in time fails.
  void Cancel() const;
  // What the operation waits for, in words; empty for a ticket of none.
  std::string Missing() const;
  // `queue` gets `tag` when the operation is done, at once if it is.
  void NotifyTo(const CompletionQueue& queue, uint64_t tag) const;

 private:
  std::shared_ptr<State> state_;
};

constexpr Duration kCancelGrace = std::chrono::seconds(2);

}  // namespace telegrad
