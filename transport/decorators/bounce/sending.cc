#include <algorithm>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "base/status_macros.h"
#include "transport/decorators/bounce/bounce_context.h"
#include "transport/send_checks.h"

namespace telegrad::bounce {

absl::Status BounceContext::Send(EndpointId to, ConstBytes header,
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
      IsDirect(payload) ? kMaxPayloadBytes : limits_.fragment_bytes;
  size_t offset = 0;
  do {
    const size_t size = std::min(payload.size - offset, most);
    Outgoing& fragment = endpoint->sends.emplace_back();
    fragment.message = message;
    fragment.payload = {payload.data + offset, size, payload.device};
    ++message->num_left;
    offset += size;
  } while (offset < payload.size);
  BeginCopies(*endpoint);
  Activate(to, *endpoint);
  return absl::OkStatus();
}

// Only what is sent counts against the limit of all endpoints: it ends with the
// peer's help alone, so that nobody waits for one who waits for him.
void BounceContext::BeginCopies(Endpoint& endpoint) {
  for (Outgoing& fragment : endpoint.sends) {
    if (fragment.is_begun) continue;
    const size_t size = fragment.payload.size;
    if (!IsDirect(fragment.payload)) {
      if (endpoint.sending_bytes > 0 &&
          endpoint.sending_bytes + size > ring_bytes_) {
        return;
      }
      const bool may_wait = sending_bytes_ > 0;
      if (may_wait && sending_bytes_ + size > limits_.staging_bytes) return;
      fragment.copy.has_failed = !copies_.TakeBuffer(fragment.copy, size);
      if (fragment.copy.has_failed && may_wait) return;
      if (!fragment.copy.has_failed) {
        sending_bytes_ += size;
        endpoint.sending_bytes += size;
        copies_.Start(fragment.copy, {fragment.copy.buffer, size},
                      fragment.payload);
      }
    }
    fragment.is_begun = true;
  }
}

void BounceContext::AdvanceSends(EndpointId id, Endpoint& endpoint) {
  if (!endpoint.why.ok()) return RefuseSends(id, endpoint);
  BeginCopies(endpoint);
  while (!endpoint.sends.empty()) {
    Outgoing& first = endpoint.sends.front();
    if (!first.is_begun || copies_.Poll(first.copy)) return;
    if (first.copy.has_failed) {
      End(id, endpoint, copies_.CopyError());
      return RefuseSends(id, endpoint);
    }
    Outgoing fragment = std::move(first);
    endpoint.sends.pop_front();
    Submit(id, std::move(fragment));
  }
  if (endpoint.is_closing && !endpoint.is_gone) inner().Close(id);
}

void BounceContext::Submit(EndpointId id, Outgoing fragment) {
  const Message& message = *fragment.message;
  ConstBytes payload = fragment.payload;
  if (fragment.copy.buffer != nullptr) {
    payload = {fragment.copy.buffer, fragment.payload.size};
  }
  FragmentHeader fragment_header = {};
  ConstBytes header = message.whole.header_view();
  if (fragment.payload.size < message.payload.size) {
    fragment_header = PackFragment(
        message.whole,
        static_cast<size_t>(fragment.payload.data - message.payload.data));
    header = {fragment_header.data(), fragment_header.size()};
  }
  const auto sent = std::make_shared<Outgoing>(std::move(fragment));
  Pass(id, header, payload, [this, id, sent](const absl::Status& status) {
    Finish(id, *sent, status);
  });
}

// The message is done with its last fragment, well if all of them were.
void BounceContext::Finish(EndpointId id, Outgoing& fragment,
                           const absl::Status& status) {
  if (fragment.copy.buffer != nullptr) {
    sending_bytes_ -= fragment.payload.size;
    if (Endpoint* const endpoint = Find(id)) {
      endpoint->sending_bytes -= fragment.payload.size;
    }
  }
  copies_.Drop(fragment.copy);
  Message& message = *fragment.message;
  message.status.Update(status);
  if (--message.num_left > 0 || !message.done) return;
  std::exchange(message.done, nullptr)(message.status);
}

// A payload that is being copied is let go of afterwards.
void BounceContext::RefuseSends(EndpointId id, Endpoint& endpoint) {
  while (!endpoint.sends.empty()) {
    Outgoing& first = endpoint.sends.front();
    if (copies_.Poll(first.copy)) return;
    const auto refused = std::make_shared<Outgoing>(std::move(first));
    endpoint.sends.pop_front();
    Defer([this, id, refused](
              const absl::Status& status) { Finish(id, *refused, status); },
          endpoint.why);
  }
}

}  // namespace telegrad::bounce
