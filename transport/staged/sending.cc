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
    return inner_->Send(to, header, payload, std::move(done));
  }
  Outgoing& message = endpoint->sends.emplace_back();
  std::copy_n(header.data, header.size, message.header.data());
  message.header_bytes = header.size;
  message.payload = payload;
  message.done = std::move(done);
  BeginCopies(*endpoint);
  Activate(to, *endpoint);
  return absl::OkStatus();
}

// Only what is sent counts against the limit: it ends with the peer's help
// alone, so that nobody waits for one who waits for him.
void StagedContext::BeginCopies(Endpoint& endpoint) {
  for (Outgoing& message : endpoint.sends) {
    if (message.is_begun) continue;
    const size_t size = message.payload.size;
    if (!IsDirect(message.payload)) {
      if (sending_bytes_ > 0 && sending_bytes_ + size > staging_bytes_) return;
      message.copy.buffer = pool_.Get(size);
      if (message.copy.buffer == nullptr && sending_bytes_ > 0) return;
      if (message.copy.buffer == nullptr) {
        message.copy.has_failed = true;
      } else {
        sending_bytes_ += size;
        StartCopy(message.copy, {message.copy.buffer, size}, message.payload);
      }
    }
    message.is_begun = true;
  }
}

void StagedContext::AdvanceSends(EndpointId id, Endpoint& endpoint) {
  if (!endpoint.why.ok()) return RefuseSends(endpoint);
  BeginCopies(endpoint);
  while (!endpoint.sends.empty()) {
    Outgoing& first = endpoint.sends.front();
    if (!first.is_begun || PollCopy(first.copy)) return;
    if (first.copy.has_failed) {
      End(id, endpoint, CopyError());
      return RefuseSends(endpoint);
    }
    Outgoing message = std::move(first);
    endpoint.sends.pop_front();
    Submit(id, std::move(message));
  }
  if (endpoint.is_closing && !endpoint.is_gone) inner_->Close(id);
}

void StagedContext::Submit(EndpointId id, Outgoing message) {
  ConstBytes payload = message.payload;
  if (message.copy.buffer != nullptr) {
    payload = {message.copy.buffer, message.payload.size};
  }
  // The inner endpoint may refuse without taking `done`.
  const auto sent = std::make_shared<Outgoing>(std::move(message));
  const auto end = [this, sent](const absl::Status& status) {
    if (sent->copy.buffer != nullptr) sending_bytes_ -= sent->payload.size;
    Drop(sent->copy);
    if (sent->done) std::exchange(sent->done, nullptr)(status);
  };
  const absl::Status refused =
      inner_->Send(id, {sent->header.data(), sent->header_bytes}, payload, end);
  if (refused.ok()) return;
  done_.push_back({end, absl::UnavailableError(refused.message())});
}

// A payload that is being copied is let go of afterwards.
void StagedContext::RefuseSends(Endpoint& endpoint) {
  while (!endpoint.sends.empty()) {
    Outgoing& first = endpoint.sends.front();
    if (PollCopy(first.copy)) return;
    if (first.copy.buffer != nullptr) sending_bytes_ -= first.payload.size;
    Drop(first.copy);
    done_.push_back({std::move(first.done), endpoint.why});
    endpoint.sends.pop_front();
  }
}

void StagedContext::CallDone() {
  while (!done_.empty()) {
    const Done next = std::move(done_.front());
    done_.pop_front();
    ++num_events_;
    if (next.done) next.done(next.status);
  }
}

}  // namespace telegrad::staged
