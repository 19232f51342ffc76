#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "transport/staged/staged_context.h"

namespace telegrad::staged {

absl::StatusOr<Bytes> StagedContext::OnHeader(EndpointId from,
                                              ConstBytes header,
                                              size_t payload_bytes) {
  Endpoint& endpoint = endpoints_[from];
  if (endpoint.is_closing) {
    Arriving& piece = endpoint.receives.emplace_back().pieces.emplace_back();
    piece.ordinary = Buffer(payload_bytes);
    return piece.ordinary.view();
  }
  Incoming* const last =
      endpoint.receives.empty() ? nullptr : &endpoint.receives.back();
  if (!IsPiece(header)) {
    if (last != nullptr) RETURN_IF_ERROR(CheckWhole(last->whole));
    Whole whole = {.header_bytes = header.size,
                   .payload_bytes = payload_bytes,
                   .begun = payload_bytes};
    std::copy_n(header.data, header.size, whole.header.data());
    return BeginMessage(from, endpoint, whole, payload_bytes);
  }
  ASSIGN_OR_RETURN(const Whole piece, ParsePiece(header, payload_bytes));
  if (last == nullptr || last->whole.is_whole()) {
    RETURN_IF_ERROR(CheckFirst(piece, payload_bytes));
    return BeginMessage(from, endpoint, piece, payload_bytes);
  }
  const size_t offset = last->whole.begun;
  RETURN_IF_ERROR(AddPiece(piece, payload_bytes, &last->whole));
  return BeginPiece(
      endpoint, *last,
      {last->payload.data + offset, payload_bytes, last->payload.device});
}

// `size`: of its first piece, or of all of it.
absl::StatusOr<Bytes> StagedContext::BeginMessage(EndpointId from,
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
      BeginPiece(endpoint, message, {target.data, size, target.device}));
  endpoint.receives.push_back(std::move(message));
  return place;
}

// Returns where it comes.
absl::StatusOr<Bytes> StagedContext::BeginPiece(Endpoint& endpoint,
                                                Incoming& message,
                                                Bytes target) {
  Arriving piece;
  piece.target = target;
  Bytes place = target.size > 0 ? target : Bytes();
  if (!IsDirect(target) && !inner().TakesNow(target)) {
    ASSIGN_OR_RETURN(const bool has_room, AwaitRoom(endpoint, target.size));
    if (has_room) {
      piece.copy.buffer = pool_.Get(target.size);
      if (piece.copy.buffer == nullptr) {
        return absl::ResourceExhaustedError(absl::StrCat(
            target.size, " bytes of pinned memory: ", copier_->error()));
      }
      endpoint.receiving_bytes += target.size;
      place = {piece.copy.buffer, target.size};
    } else {
      piece.ordinary = Buffer(target.size);
      place = piece.ordinary.view();
    }
  }
  message.pieces.push_back(std::move(piece));
  return place;
}

// Whether the ring has room for it. What has arrived and is being copied makes
// some by itself, and soon; nobody else has to help, so that it can be waited
// for here.
absl::StatusOr<bool> StagedContext::AwaitRoom(Endpoint& endpoint, size_t size) {
  if (size > ring_bytes_) return false;
  const TimePoint deadline = Clock::now() + kCloseGrace;
  for (Incoming& message : endpoint.receives) {
    for (Arriving& piece : message.pieces) {
      if (endpoint.receiving_bytes + size <= ring_bytes_) return true;
      if (!piece.has_arrived) return false;
      while (PollCopy(piece.copy)) {
        if (Clock::now() < deadline) continue;
        return absl::DeadlineExceededError(
            "a copy from pinned memory to a device does not end");
      }
      DropBuffer(endpoint, piece);
    }
  }
  return endpoint.receiving_bytes + size <= ring_bytes_;
}

void StagedContext::DropBuffer(Endpoint& endpoint, Arriving& piece) {
  if (piece.copy.buffer == nullptr) return;
  if (piece.ordinary.size() == 0) endpoint.receiving_bytes -= piece.target.size;
  Drop(piece.copy);
}

void StagedContext::OnMessage(EndpointId from, ConstBytes, Bytes) {
  Endpoint& endpoint = endpoints_[from];
  Arriving* next = nullptr;
  for (Incoming& message : endpoint.receives) {
    const auto found =
        std::find_if(message.pieces.begin(), message.pieces.end(),
                     [](const Arriving& piece) { return !piece.has_arrived; });
    if (found == message.pieces.end()) continue;
    next = &*found;
    break;
  }
  if (next == nullptr) return;  // dropped
  next->has_arrived = true;
  if (next->copy.buffer != nullptr) {
    StartCopy(next->copy, next->target, {next->copy.buffer, next->target.size});
  }
  AdvanceReceives(from, endpoint);
  if (!endpoint.receives.empty()) Activate(from, endpoint);
}

// What came into ordinary memory goes on through one pinned piece beside the
// ring, since only the first of all that has arrived does. False: all of it
// has, or there is no pinned memory.
bool StagedContext::CopyOrdinary(Arriving& piece) {
  const size_t done = piece.num_copied;
  const size_t size =
      std::min(piece.ordinary.size() - done, limits_.piece_bytes);
  if (size == 0) return false;
  Copy& copy = piece.copy;
  if (copy.buffer == nullptr) copy.buffer = pool_.Get(size);
  copy.has_failed = copy.buffer == nullptr;
  if (copy.has_failed) return false;
  std::memcpy(copy.buffer, piece.ordinary.data() + done, size);
  StartCopy(copy, {piece.target.data + done, size, piece.target.device},
            {copy.buffer, size});
  piece.num_copied += size;
  return true;
}

// Whether all of the message is where it belongs.
bool StagedContext::TakeArrived(EndpointId id, Endpoint& endpoint,
                                Incoming& message) {
  while (!message.pieces.empty()) {
    Arriving& first = message.pieces.front();
    if (!first.has_arrived || PollCopy(first.copy)) return false;
    if (!first.copy.has_failed && CopyOrdinary(first)) return false;
    DropBuffer(endpoint, first);
    if (first.copy.has_failed) {
      End(id, endpoint, CopyError());
      return false;
    }
    message.pieces.pop_front();
  }
  return message.whole.is_whole();
}

void StagedContext::AdvanceReceives(EndpointId id, Endpoint& endpoint) {
  while (!endpoint.receives.empty()) {
    // Whoever has closed its side hears nothing more.
    if (endpoint.is_closing) return DropReceives(endpoint);
    Incoming& first = endpoint.receives.front();
    if (!TakeArrived(id, endpoint, first)) {
      if (endpoint.is_closing) continue;
      // What came behind it is not there either.
      if (endpoint.is_gone && !HasArrived(first)) DropReceives(endpoint);
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
void StagedContext::DropReceives(Endpoint& endpoint) {
  while (!endpoint.receives.empty()) {
    std::deque<Arriving>& pieces = endpoint.receives.front().pieces;
    while (!pieces.empty()) {
      Arriving& first = pieces.front();
      if (PollCopy(first.copy)) return;
      if (!first.has_arrived && !endpoint.is_gone) return;
      DropBuffer(endpoint, first);
      pieces.pop_front();
    }
    endpoint.receives.pop_front();
  }
}

}  // namespace telegrad::staged
