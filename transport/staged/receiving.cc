#include <algorithm>
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
    Incoming& message = endpoint.receives.emplace_back();
    message.unheard = Buffer(payload_bytes);
    return message.unheard.view();
  }
  ASSIGN_OR_RETURN(const Bytes target,
                   handler_->OnHeader(from, header, payload_bytes));
  if (target.size < payload_bytes) {
    return absl::InternalError(absl::StrCat("OnHeader gave ", target.size,
                                            " bytes for ", payload_bytes));
  }
  RETURN_IF_ERROR(CheckDevice(target));
  Incoming message;
  message.payload = target;
  message.size = payload_bytes;
  Bytes place = payload_bytes > 0 ? target : Bytes();
  if (payload_bytes > 0 && !IsDirect(target)) {
    message.copy.buffer = pool_.Get(payload_bytes);
    if (message.copy.buffer == nullptr) {
      return absl::ResourceExhaustedError(absl::StrCat(
          payload_bytes, " bytes of pinned memory: ", copier_->error()));
    }
    place = {message.copy.buffer, payload_bytes};
  }
  endpoint.receives.push_back(std::move(message));
  return place;
}

void StagedContext::OnMessage(EndpointId from, ConstBytes header, Bytes) {
  Endpoint& endpoint = endpoints_[from];
  const auto next = std::find_if(
      endpoint.receives.begin(), endpoint.receives.end(),
      [](const Incoming& message) { return !message.has_arrived; });
  if (next == endpoint.receives.end()) return;  // dropped
  std::copy_n(header.data, header.size, next->header.data());
  next->header_bytes = header.size;
  next->has_arrived = true;
  if (next->copy.buffer != nullptr) {
    StartCopy(next->copy,
              {next->payload.data, next->size, next->payload.device},
              {next->copy.buffer, next->size});
  }
  AdvanceReceives(from, endpoint);
  if (!endpoint.receives.empty()) Activate(from, endpoint);
}

void StagedContext::AdvanceReceives(EndpointId id, Endpoint& endpoint) {
  while (!endpoint.receives.empty()) {
    // Whoever has closed its side hears nothing more.
    if (endpoint.is_closing) return DropReceives(endpoint);
    Incoming& first = endpoint.receives.front();
    if (!first.has_arrived) {
      // What came behind it is not there either.
      if (endpoint.is_gone) DropReceives(endpoint);
      return;
    }
    if (PollCopy(first.copy)) return;
    Drop(first.copy);
    if (first.copy.has_failed) {
      End(id, endpoint, CopyError());
      continue;
    }
    const Incoming message = std::move(first);
    endpoint.receives.pop_front();
    ++num_events_;
    handler_->OnMessage(
        id, {message.header.data(), message.header_bytes},
        {message.payload.data, message.size, message.payload.device});
  }
}

// What is still being received is let go of when the inner endpoint has gone,
// what is being copied when that has ended.
void StagedContext::DropReceives(Endpoint& endpoint) {
  while (!endpoint.receives.empty()) {
    Incoming& first = endpoint.receives.front();
    if (PollCopy(first.copy)) return;
    if (!first.has_arrived && !endpoint.is_gone) return;
    Drop(first.copy);
    endpoint.receives.pop_front();
  }
}

}  // namespace telegrad::staged
