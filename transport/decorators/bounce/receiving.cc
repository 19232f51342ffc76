#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "transport/decorators/bounce/bounce_context.h"

namespace telegrad::bounce {
namespace {

// For room in the ring: some 2 MiB over PCIe.
constexpr Duration kMostAwaited = std::chrono::microseconds(100);

}  // namespace

absl::StatusOr<Bytes> BounceContext::OnHeader(EndpointId from,
                                              ConstBytes header,
                                              size_t payload_bytes) {
  Endpoint& endpoint = endpoints_[from];
  if (endpoint.is_closing) {
    Arriving& fragment =
        endpoint.receives.emplace_back().fragments.emplace_back();
    ASSIGN_OR_RETURN(fragment.ordinary, Buffer::Create(payload_bytes));
    ordinary_bytes_ += payload_bytes;
    return fragment.ordinary.view();
  }
  Incoming* const last =
      endpoint.receives.empty() ? nullptr : &endpoint.receives.back();
  if (!IsFragment(header)) {
    if (last != nullptr) RETURN_IF_ERROR(CheckWhole(last->whole));
    Whole whole = {.header_bytes = header.size,
                   .payload_bytes = payload_bytes,
                   .begun = payload_bytes};
    std::copy_n(header.data, header.size, whole.header.data());
    return BeginMessage(from, endpoint, whole, payload_bytes);
  }
  ASSIGN_OR_RETURN(const Whole fragment, ParseFragment(header, payload_bytes));
  if (last == nullptr || last->whole.is_whole()) {
    RETURN_IF_ERROR(CheckFirst(fragment, payload_bytes));
    return BeginMessage(from, endpoint, fragment, payload_bytes);
  }
  const size_t offset = last->whole.begun;
  RETURN_IF_ERROR(AddFragment(fragment, payload_bytes, &last->whole));
  return BeginFragment(
      endpoint, *last,
      {last->payload.data + offset, payload_bytes, last->payload.device});
}

// `size`: of its first fragment, or of all of it.
absl::StatusOr<Bytes> BounceContext::BeginMessage(EndpointId from,
                                                  Endpoint& endpoint,
                                                  const Whole& whole,
                                                  size_t size) {
  const size_t payload_bytes = whole.payload_bytes;
  ASSIGN_OR_RETURN(
      const Bytes target,
      handler().OnHeader(from, whole.header_view(), payload_bytes));
  if (target.size < payload_bytes) {
    return absl::InternalError(absl::StrCat("OnHeader gave ", target.size,
                                            " bytes for ", payload_bytes));
  }
  RETURN_IF_ERROR(CheckDevice(target));
  Incoming message = {.whole = whole,
                      .payload = {target.data, payload_bytes, target.device}};
  ASSIGN_OR_RETURN(
      const Bytes place,
      BeginFragment(endpoint, message, {target.data, size, target.device}));
  endpoint.receives.push_back(std::move(message));
  return place;
}

// Returns where it comes.
absl::StatusOr<Bytes> BounceContext::BeginFragment(Endpoint& endpoint,
                                                   Incoming& message,
                                                   Bytes target) {
  Arriving fragment;
  fragment.target = target;
  Bytes place = target.size > 0 ? target : Bytes();
  if (!IsDirect(target) && !inner().TakesNow(target)) {
    if (HasRoom(endpoint, target.size)) {
      if (!copies_.TakeBuffer(fragment.copy, target.size)) {
        return copies_.MemoryError(target.size);
      }
      endpoint.receiving_bytes += target.size;
      place = {fragment.copy.buffer, target.size};
    } else {
      ASSIGN_OR_RETURN(fragment.ordinary, Buffer::Create(target.size));
      ordinary_bytes_ += target.size;
      place = fragment.ordinary.view();
    }
  }
  message.fragments.push_back(std::move(fragment));
  return place;
}

// Whether the ring has room for it. What has arrived and is being copied makes
// some by itself, mostly within microseconds; a device that needs longer must
// not keep the other endpoints waiting.
bool BounceContext::HasRoom(Endpoint& endpoint, size_t size) {
  if (size > ring_bytes_) return false;
  const TimePoint deadline = Clock::now() + kMostAwaited;
  for (Incoming& message : endpoint.receives) {
    for (Arriving& fragment : message.fragments) {
      if (endpoint.receiving_bytes + size <= ring_bytes_) return true;
      if (!fragment.has_arrived) return false;
      while (copies_.Poll(fragment.copy)) {
        if (Clock::now() >= deadline) return false;
      }
      if (fragment.ordinary.size() == 0) DropBuffer(endpoint, fragment);
    }
  }
  return endpoint.receiving_bytes + size <= ring_bytes_;
}

void BounceContext::DropBuffer(Endpoint& endpoint, Arriving& fragment) {
  const bool is_in_ring = fragment.ordinary.size() == 0;
  ordinary_bytes_ -= fragment.ordinary.size();
  fragment.ordinary = Buffer();
  if (fragment.copy.buffer == nullptr) return;
  if (is_in_ring) endpoint.receiving_bytes -= fragment.target.size;
  copies_.Drop(fragment.copy);
}

void BounceContext::OnMessage(EndpointId from, ConstBytes, Bytes) {
  Endpoint& endpoint = endpoints_[from];
  Arriving* next = nullptr;
  for (Incoming& message : endpoint.receives) {
    const auto found = std::find_if(
        message.fragments.begin(), message.fragments.end(),
        [](const Arriving& fragment) { return !fragment.has_arrived; });
    if (found == message.fragments.end()) continue;
    next = &*found;
    break;
  }
  if (next == nullptr) return;  // dropped
  next->has_arrived = true;
  if (next->copy.buffer != nullptr) {
    copies_.Start(next->copy, next->target,
                  {next->copy.buffer, next->target.size});
  }
  AdvanceReceives(from, endpoint);
  if (!endpoint.receives.empty()) Activate(from, endpoint);
}

// What came into ordinary memory goes on through one pinned fragment beside the
// ring, since only the first of all that has arrived does. False: all of it
// has, or there is no pinned memory.
bool BounceContext::CopyOrdinary(Arriving& fragment) {
  const size_t done = fragment.num_copied;
  const size_t size =
      std::min(fragment.ordinary.size() - done, limits_.fragment_bytes);
  if (size == 0) return false;
  Copy& copy = fragment.copy;
  copy.has_failed = copy.buffer == nullptr && !copies_.TakeBuffer(copy, size);
  if (copy.has_failed) return false;
  std::memcpy(copy.buffer, fragment.ordinary.data() + done, size);
  copies_.Start(copy,
                {fragment.target.data + done, size, fragment.target.device},
                {copy.buffer, size});
  fragment.num_copied += size;
  return true;
}

// Whether all of the message is where it belongs.
bool BounceContext::TakeArrived(EndpointId id, Endpoint& endpoint,
                                Incoming& message) {
  while (!message.fragments.empty()) {
    Arriving& first = message.fragments.front();
    if (!first.has_arrived || copies_.Poll(first.copy)) return false;
    if (!first.copy.has_failed && CopyOrdinary(first)) return false;
    DropBuffer(endpoint, first);
    if (first.copy.has_failed) {
      End(id, endpoint, copies_.CopyError());
      return false;
    }
    message.fragments.pop_front();
  }
  return message.whole.is_whole();
}

void BounceContext::AdvanceReceives(EndpointId id, Endpoint& endpoint) {
  while (!endpoint.receives.empty()) {
    // Whoever has closed its side hears nothing more.
    if (endpoint.is_closing) return DropReceives(endpoint);
    Incoming& first = endpoint.receives.front();
    if (!TakeArrived(id, endpoint, first)) {
      if (endpoint.is_closing) continue;
      // What came behind it is not there either.
      if (endpoint.is_gone && !first.has_arrived()) DropReceives(endpoint);
      return;
    }
    const Incoming message = std::move(first);
    endpoint.receives.pop_front();
    ++num_events_;
    handler().OnMessage(id, message.whole.header_view(), message.payload);
  }
}

// What is still being received is let go of when the inner endpoint has gone,
// what is being copied when that has ended.
void BounceContext::DropReceives(Endpoint& endpoint) {
  while (!endpoint.receives.empty()) {
    std::deque<Arriving>& fragments = endpoint.receives.front().fragments;
    while (!fragments.empty()) {
      Arriving& first = fragments.front();
      if (copies_.Poll(first.copy)) return;
      if (!first.has_arrived && !endpoint.is_gone) return;
      DropBuffer(endpoint, first);
      fragments.pop_front();
    }
    endpoint.receives.pop_front();
  }
}

}  // namespace telegrad::bounce
