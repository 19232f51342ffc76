#pragma once

#include <deque>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/decorators/bounce/device_copies.h"
#include "transport/decorators/bounce/fragment.h"

namespace telegrad::bounce {

// What all endpoints of a context share.
struct Staging {
  DeviceCopies copies;
  const size_t fragment_bytes;
  const size_t ring_bytes;  // pinned, of each endpoint and direction
  // Bytes that have come into memory beside the rings. Bytes still to come do
  // not count: too many of these keep their owner from receiving, and they
  // would never come.
  size_t ordinary_bytes = 0;
};

// Messages of one endpoint that were announced and not heard, in their order.
// For each fragment Begin or Add, then HasCome; then IsFirstHere and Pop. One
// thread.
class ReceiveQueue {
 public:
  struct Message {
    Whole whole;
    Bytes payload = {};  // where the handler wants it
  };

  explicit ReceiveQueue(Staging& staging) : staging_(staging) {}

  bool empty() const { return messages_.empty(); }
  // The last, of which fragments may be lacking. Null: there is none.
  Whole* last() {
    return messages_.empty() ? nullptr : &messages_.back().message.whole;
  }
  // Where the last wants what comes at `offset`.
  Bytes TargetAt(size_t offset, size_t size) const;

  // Where the next fragment comes, of a new message or of the last; all the
  // same with `is_direct`, else first to memory of the host.
  absl::StatusOr<Bytes> Begin(const Message& message, size_t size,
                              bool is_direct);
  absl::StatusOr<Bytes> Add(Bytes target, bool is_direct);
  // Places a fragment that nobody will hear.
  absl::StatusOr<Bytes> AddUnheard(size_t size);
  // The next fragment has.
  void HasCome();

  // Whether the first fragment has come and waits for its copy.
  bool is_copying() const {
    return !messages_.empty() && !messages_.front().fragments.empty() &&
           messages_.front().fragments.front().has_come;
  }
  // Whether all of the first message is where it belongs; an error if a copy
  // has failed.
  absl::StatusOr<bool> IsFirstHere();
  Message Pop();
  // Lets go of all that is not being copied, nor, unless `is_gone`, received.
  void Drop(bool is_gone);

 private:
  struct Fragment {
    Bytes target = {};
    Copy copy = {};
    // Where it comes when the ring has no room for it, or is not heard.
    Buffer ordinary = {};
    size_t num_copied = 0;  // bytes of `ordinary`, or being copied
    bool has_come = false;
  };
  struct Incoming {
    Message message;
    std::deque<Fragment> fragments = {};  // fragments that are not there yet
  };

  absl::StatusOr<Bytes> Place(Fragment& fragment, bool is_direct);
  bool HasRoom(size_t size);
  bool CopyOrdinary(Fragment& fragment);
  void DropBuffer(Fragment& fragment);

  Staging& staging_;
  std::deque<Incoming> messages_;
  size_t ring_used_bytes_ = 0;
};

}  // namespace telegrad::bounce
