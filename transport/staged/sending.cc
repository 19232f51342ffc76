#include <algorithm>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "base/status_macros.h"
#include "transport/send_checks.h"
#include "transport/staged/staged_context.h"

namespace telegrad::staged {

absl::Status StagedContext::Send(EndpointId to, ConstBytes header,
                                 ConstBytes payload, SendDone done) {
  Endpoint* const endpoint = Find(to);
  if (endpoint == nullptr || endpoint->is_closing || endpoint->is_gone) {
    return NotOpen(to);
  }
  RETURN_IF_ERROR(CheckSizes(header, payload));
  RETURN_IF_ERROR(CheckDevice(payload));
  if (payload.size == 0) payload = {};  // of no device
  if (endpoint->sends.empty() && IsDirect(payload)) {
    return inner().Send(to, header, payload, std::move(done));
  }
  if (endpoint->sends.empty() && inner().TakesSome(payload.device.kind)) {
    const absl::Status sent = inner().Send(to, header, payload, done);
    if (!absl::IsUnimplemented(sent)) return sent;
  }
  const auto message = std::make_shared<Message>();
  message->whole.header_bytes = header.size;
  std::copy_n(header.data, header.size, message->whole.header.data());
  message->whole.payload_bytes = payload.size;
  message->payload = payload;
  message->done = std::move(done);
  const size_t most =
      IsDirect(payload) ? kMaxPayloadBytes : limits_.piece_bytes;
  size_t offset = 0;
  do {
    const size_t size = std::min(payload.size - offset, most);
    Outgoing& piece = endpoint->sends.emplace_back();
    piece.message = message;
    piece.payload = {payload.data + offset, size, payload.device};
    ++message->num_left;
    offset += size;
  } while (offset < payload.size);
  BeginCopies(*endpoint);
  Activate(to, *endpoint);
  return absl::OkStatus();
}

// Only what is sent counts against the limit of all endpoints: it ends with the
// peer's help alone, so that nobody waits for one who waits for him.
void StagedContext::BeginCopies(Endpoint& endpoint) {
  for (Outgoing& piece : endpoint.sends) {
    if (piece.is_begun) continue;
    const size_t size = piece.payload.size;
    if (!IsDirect(piece.payload)) {
      if (endpoint.sending_bytes > 0 &&
          endpoint.sending_bytes + size > ring_bytes_) {
        return;
      }
      const bool may_wait = sending_bytes_ > 0;
      if (may_wait && sending_bytes_ + size > limits_.staging_bytes) return;
      piece.copy.buffer = pool_.Get(size);
      if (piece.copy.buffer == nullptr && may_wait) return;
      if (piece.copy.buffer == nullptr) {
        piece.copy.has_failed = true;
      } else {
        sending_bytes_ += size;
        endpoint.sending_bytes += size;
        StartCopy(piece.copy, {piece.copy.buffer, size}, piece.payload);
      }
    }
    piece.is_begun = true;
  }
}

void StagedContext::AdvanceSends(EndpointId id, Endpoint& endpoint) {
  if (!endpoint.why.ok()) return RefuseSends(id, endpoint);
  BeginCopies(endpoint);
  while (!endpoint.sends.empty()) {
    Outgoing& first = endpoint.sends.front();
    if (!first.is_begun || PollCopy(first.copy)) return;
    if (first.copy.has_failed) {
      End(id, endpoint, CopyError());
      return RefuseSends(id, endpoint);
    }
    Outgoing piece = std::move(first);
    endpoint.sends.pop_front();
    Submit(id, std::move(piece));
  }
  if (endpoint.is_closing && !endpoint.is_gone) inner().Close(id);
}

void StagedContext::Submit(EndpointId id, Outgoing piece) {
  const Message& message = *piece.message;
  ConstBytes payload = piece.payload;
  if (piece.copy.buffer != nullptr) {
    payload = {piece.copy.buffer, piece.payload.size};
  }
  PieceHeader piece_header = {};
  ConstBytes header = message.whole.header_view();
  if (piece.payload.size < message.payload.size) {
    piece_header = PackPiece(
        message.whole,
        static_cast<size_t>(piece.payload.data - message.payload.data));
    header = {piece_header.data(), piece_header.size()};
  }
  const auto sent = std::make_shared<Outgoing>(std::move(piece));
  Pass(id, header, payload, [this, id, sent](const absl::Status& status) {
    Finish(id, *sent, status);
  });
}

// The message is done with its last piece, well if all of them were.
void StagedContext::Finish(EndpointId id, Outgoing& piece,
                           const absl::Status& status) {
  if (piece.copy.buffer != nullptr) {
    sending_bytes_ -= piece.payload.size;
    if (Endpoint* const endpoint = Find(id)) {
      endpoint->sending_bytes -= piece.payload.size;
    }
  }
  Drop(piece.copy);
  Message& message = *piece.message;
  message.status.Update(status);
  if (--message.num_left > 0 || !message.done) return;
  std::exchange(message.done, nullptr)(message.status);
}

// A payload that is being copied is let go of afterwards.
void StagedContext::RefuseSends(EndpointId id, Endpoint& endpoint) {
  while (!endpoint.sends.empty()) {
    Outgoing& first = endpoint.sends.front();
    if (PollCopy(first.copy)) return;
    const auto refused = std::make_shared<Outgoing>(std::move(first));
    endpoint.sends.pop_front();
    Defer([this, id, refused](
              const absl::Status& status) { Finish(id, *refused, status); },
          endpoint.why);
  }
}

}  // namespace telegrad::staged
