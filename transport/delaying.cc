#include "transport/delaying.h"

#include <algorithm>
#include <utility>

#include "base/status_macros.h"

namespace telegrad {

absl::StatusOr<EndpointId> DelayingContext::Connect(absl::string_view address) {
  ASSIGN_OR_RETURN(const EndpointId id, inner().Connect(address));
  endpoints_[id];
  return id;
}

absl::Status DelayingContext::Send(EndpointId to, ConstBytes header,
                                   ConstBytes payload, SendDone done) {
  const auto found = endpoints_.find(to);
  if (found == endpoints_.end() || found->second.is_closing) {
    return NotOpen(to);
  }
  RETURN_IF_ERROR(CheckSizes(header, payload, max_header_bytes_));
  DelayedMessage message;
  std::copy_n(header.data, header.size, message.header.data());
  message.header_bytes = header.size;
  message.payload = payload;
  message.done = std::move(done);
  Enqueue(to, std::move(message), found->second.queue);
  return absl::OkStatus();
}

void DelayingContext::Cut(EndpointId id, const absl::Status& why) {
  Endpoint& endpoint = endpoints_[id];
  endpoint.is_closing = true;
  Refuse(endpoint.queue, why);
  inner().Close(id);
}

void DelayingContext::Close(EndpointId id) {
  const auto found = endpoints_.find(id);
  if (found == endpoints_.end() || found->second.is_closing) return;
  found->second.is_closing = true;
  found->second.close_by = Clock::now() + kCloseGrace;
  if (found->second.queue.empty()) inner().Close(id);
}

void DelayingContext::Release(EndpointId id, DelayedMessages& queue,
                              TimePoint now) {
  while (!queue.empty() && queue.front().leaves <= now) {
    const DelayedMessage message = std::move(queue.front());
    queue.pop_front();
    Pass(id, {message.header.data(), message.header_bytes}, message.payload,
         message.done);
  }
}

void DelayingContext::Refuse(DelayedMessages& queue, const absl::Status& why) {
  for (DelayedMessage& message : queue) Defer(std::move(message.done), why);
  queue.clear();
}

bool DelayingContext::HandleEvents(TimePoint* next) {
  const TimePoint now = Clock::now();
  for (auto& [id, endpoint] : endpoints_) {
    DelayedMessages& queue = endpoint.queue;
    if (queue.empty()) continue;
    Release(id, queue, now);
    if (endpoint.is_closing && endpoint.close_by <= now) {
      Refuse(queue, absl::CancelledError("closed by this side"));
    }
    if (!queue.empty()) {
      *next = std::min(*next, queue.front().leaves);
      if (endpoint.is_closing) *next = std::min(*next, endpoint.close_by);
    } else if (endpoint.is_closing) {
      inner().Close(id);
    }
  }
  return CallDue();
}

void DelayingContext::OnAccept(EndpointId endpoint) {
  endpoints_[endpoint];
  handler().OnAccept(endpoint);
}

void DelayingContext::OnClosed(EndpointId id, const absl::Status& why) {
  auto node = endpoints_.extract(id);
  if (!node.empty()) Refuse(node.mapped().queue, why);
  CallDue();
  handler().OnClosed(id, why);
}

}  // namespace telegrad
