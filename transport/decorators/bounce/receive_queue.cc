#include "transport/decorators/bounce/receive_queue.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "base/status_macros.h"

namespace telegrad::bounce {
namespace {

// For room in the ring: some 2 MiB over PCIe.
constexpr Duration kMostAwaited = std::chrono::microseconds(100);

}  // namespace

Bytes ReceiveQueue::TargetAt(size_t offset, size_t size) const {
  const Bytes& payload = messages_.back().message.payload;
  return {payload.data + offset, size, payload.device};
}

absl::StatusOr<Bytes> ReceiveQueue::Begin(const Message& message, size_t size,
                                          bool is_direct) {
  Fragment first;
  first.target = {message.payload.data, size, message.payload.device};
  ASSIGN_OR_RETURN(const Bytes place, Place(first, is_direct));
  messages_.push_back({.message = message});
  messages_.back().fragments.push_back(std::move(first));
  return place;
}

absl::StatusOr<Bytes> ReceiveQueue::Add(Bytes target, bool is_direct) {
  Fragment next;
  next.target = target;
  ASSIGN_OR_RETURN(const Bytes place, Place(next, is_direct));
  messages_.back().fragments.push_back(std::move(next));
  return place;
}

absl::StatusOr<Bytes> ReceiveQueue::AddUnheard(size_t size) {
  Fragment& fragment = messages_.emplace_back().fragments.emplace_back();
  ASSIGN_OR_RETURN(fragment.ordinary, Buffer::Create(size));
  return fragment.ordinary.view();
}

absl::StatusOr<Bytes> ReceiveQueue::Place(Fragment& fragment, bool is_direct) {
  const size_t size = fragment.target.size;
  if (size == 0) return Bytes();
  if (is_direct) return fragment.target;
  if (HasRoom(size)) {
    if (!staging_.copies.TakeBuffer(fragment.copy, size)) {
      return staging_.copies.MemoryError(size);
    }
    ring_used_bytes_ += size;
    return Bytes(fragment.copy.buffer, size);
  }
  ASSIGN_OR_RETURN(fragment.ordinary, Buffer::Create(size));
  return fragment.ordinary.view();
}

// Whether the ring has room for it. What has come and is being copied makes
// some by itself, mostly within microseconds; a device that needs longer must
// not keep the other endpoints waiting.
bool ReceiveQueue::HasRoom(size_t size) {
  if (size > staging_.ring_bytes) return false;
  const auto has_room = [&] {
    return ring_used_bytes_ + size <= staging_.ring_bytes;
  };
  const TimePoint deadline = Clock::now() + kMostAwaited;
  for (Incoming& incoming : messages_) {
    for (Fragment& fragment : incoming.fragments) {
      if (has_room()) return true;
      if (!fragment.has_come) return false;
      while (staging_.copies.Poll(fragment.copy)) {
        if (Clock::now() >= deadline) return false;
      }
      if (fragment.ordinary.size() == 0) DropBuffer(fragment);
    }
  }
  return has_room();
}

void ReceiveQueue::DropBuffer(Fragment& fragment) {
  const bool is_in_ring = fragment.ordinary.size() == 0;
  if (fragment.has_come) {
    staging_.ordinary_bytes -= fragment.ordinary.size();
  }
  fragment.ordinary = Buffer();
  if (fragment.copy.buffer == nullptr) return;
  if (is_in_ring) ring_used_bytes_ -= fragment.target.size;
  staging_.copies.Drop(fragment.copy);
}

void ReceiveQueue::HasCome() {
  for (Incoming& incoming : messages_) {
    const auto next = std::find_if(
        incoming.fragments.begin(), incoming.fragments.end(),
        [](const Fragment& fragment) { return !fragment.has_come; });
    if (next == incoming.fragments.end()) continue;
    next->has_come = true;
    staging_.ordinary_bytes += next->ordinary.size();
    if (next->copy.buffer != nullptr) {
      staging_.copies.Start(next->copy, next->target,
                            {next->copy.buffer, next->target.size});
    }
    return;
  }
}

// What came into ordinary memory goes on through one pinned fragment beside the
// ring, since only the first of all that has come does. False: all of it has,
// or there is no pinned memory.
bool ReceiveQueue::CopyOrdinary(Fragment& fragment) {
  const size_t done = fragment.num_copied;
  const size_t size =
      std::min(fragment.ordinary.size() - done, staging_.fragment_bytes);
  if (size == 0) return false;
  Copy& copy = fragment.copy;
  copy.has_failed =
      copy.buffer == nullptr && !staging_.copies.TakeBuffer(copy, size);
  if (copy.has_failed) return false;
  std::memcpy(copy.buffer, fragment.ordinary.data() + done, size);
  staging_.copies.Start(
      copy, {fragment.target.data + done, size, fragment.target.device},
      {copy.buffer, size});
  fragment.num_copied += size;
  return true;
}

absl::StatusOr<bool> ReceiveQueue::IsFirstHere() {
  Incoming& incoming = messages_.front();
  while (!incoming.fragments.empty()) {
    Fragment& first = incoming.fragments.front();
    if (!first.has_come || staging_.copies.Poll(first.copy)) return false;
    if (!first.copy.has_failed && CopyOrdinary(first)) return false;
    DropBuffer(first);
    if (first.copy.has_failed) return staging_.copies.CopyError();
    incoming.fragments.pop_front();
  }
  return incoming.message.whole.is_whole();
}

ReceiveQueue::Message ReceiveQueue::Pop() {
  Message message = std::move(messages_.front().message);
  messages_.pop_front();
  return message;
}

void ReceiveQueue::Drop(bool is_gone) {
  while (!messages_.empty()) {
    std::deque<Fragment>& fragments = messages_.front().fragments;
    while (!fragments.empty()) {
      Fragment& first = fragments.front();
      if (staging_.copies.Poll(first.copy)) return;
      if (!first.has_come && !is_gone) return;
      DropBuffer(first);
      fragments.pop_front();
    }
    messages_.pop_front();
  }
}

}  // namespace telegrad::bounce
