#include "transport/decorators/resend/resend_context.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "transport/send_checks.h"

namespace telegrad {

absl::StatusOr<std::unique_ptr<TransportContext>> MakeResendTransport(
    const TransportFactory& make_inner, const TransportOptions& options,
    TransportHandler* handler, const ResendLimits& limits) {
  return resend::ResendContext::Make(make_inner, options, handler, limits);
}

namespace resend {

ResendContext::ResendContext(const TransportOptions& options,
                             TransportHandler* handler,
                             const ResendLimits& limits)
    : ForwardingContext(handler),
      limits_(limits),
      max_header_bytes_(MaxHeaderBytes(options)) {}

absl::StatusOr<std::unique_ptr<TransportContext>> ResendContext::Make(
    const TransportFactory& make_inner, const TransportOptions& options,
    TransportHandler* handler, const ResendLimits& limits) {
  std::unique_ptr<ResendContext> context(
      new ResendContext(options, handler, limits));
  TransportOptions inner_options = options;
  inner_options.prefix_bytes += kPrefixBytes;
  RETURN_IF_ERROR(context->MakeInner(make_inner, inner_options));
  return context;
}

TransportInfo ResendContext::info() const {
  TransportInfo info = inner().info();
  absl::StrAppend(&info.details, ", resend: ", num_again_, " sent again, ",
                  num_duplicates_, " duplicates, ", num_reordered_,
                  " reordered, ", num_harmed_, " damaged");
  return info;
}

ResendContext::Endpoint* ResendContext::Find(EndpointId id) {
  const auto found = endpoints_.find(id);
  return found == endpoints_.end() ? nullptr : &found->second;
}

void ResendContext::Add(EndpointId id) { endpoints_[id].id = id; }

absl::StatusOr<EndpointId> ResendContext::Connect(absl::string_view address) {
  ASSIGN_OR_RETURN(const EndpointId id, inner().Connect(address));
  Add(id);
  return id;
}

void ResendContext::OnAccept(EndpointId endpoint) {
  Add(endpoint);
  handler().OnAccept(endpoint);
}

absl::Status ResendContext::Send(EndpointId to, ConstBytes header,
                                 ConstBytes payload, SendDone done) {
  Endpoint* const endpoint = Find(to);
  if (endpoint == nullptr || !endpoint->why.ok()) return NotOpen(to);
  RETURN_IF_ERROR(CheckSizes(header, payload, max_header_bytes_));
  RETURN_IF_ERROR(CheckOnHost("resend", payload.device));
  Enqueue(*endpoint, Kind::kMessage, header, payload, std::move(done), 0);
  return absl::OkStatus();
}

// The end is acknowledged as all before it, so that it tells for sure what was
// taken, where an answer may be lost. What has come and is not heard is taken.
void ResendContext::Close(EndpointId id) {
  Endpoint* const endpoint = Find(id);
  if (endpoint == nullptr || !endpoint->why.ok()) return;
  endpoint->why = absl::CancelledError("closed by this side");
  endpoint->close_by = Clock::now() + kCloseGrace;
  endpoint->taken += static_cast<uint32_t>(endpoint->incoming.size());
  Enqueue(*endpoint, Kind::kEnd, {}, {}, nullptr, endpoint->taken);
}

void ResendContext::Cut(Endpoint& endpoint) {
  if (std::exchange(endpoint.is_closed, true)) return;
  inner().Close(endpoint.id);
}

void ResendContext::Fail(Endpoint& endpoint, const absl::Status& why) {
  if (endpoint.why.ok()) endpoint.why = why;
  Cut(endpoint);
}

void ResendContext::OnClosed(EndpointId id, const absl::Status& why) {
  const auto node = endpoints_.extract(id);
  if (node.empty()) return;
  Endpoint& endpoint = node.mapped();
  const absl::Status reason = endpoint.why.ok() ? why : endpoint.why;
  for (const Outgoing& message : endpoint.outgoing) {
    if (message.done) message.done(reason);
  }
  handler().OnClosed(id, reason);
}

bool ResendContext::HandleEvents(TimePoint* next) {
  const TimePoint now = Clock::now();
  for (auto& [id, endpoint] : endpoints_) {
    *next = std::min(*next, AdvanceTimer(endpoint, now));
  }
  return false;
}

// What was taken is answered for all at once, and soon: who does not call again
// must not leave the peer waiting.
bool ResendContext::Progress(TimePoint deadline) {
  const bool has_handled = ForwardingContext::Progress(deadline);
  for (const EndpointId id : std::exchange(due_, {})) {
    Endpoint* const endpoint = Find(id);
    if (endpoint == nullptr) continue;
    endpoint->is_due = false;
    SendAnswer(*endpoint);
  }
  return has_handled;
}

}  // namespace resend
}  // namespace telegrad
