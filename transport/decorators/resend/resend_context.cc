#include "transport/decorators/resend/resend_context.h"

#include <algorithm>
#include <array>
#include <optional>
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
namespace {

// In a row; then the peer does not send what this decorator does.
constexpr int kMaxHarmedHeaders = 16;
// A sender whose window is full waits for an answer.
constexpr uint32_t kTakenPerAnswer = 256;

bool IsOfSender(Kind kind) {
  return kind == Kind::kMessage || kind == Kind::kEnd;
}

}  // namespace

ResendContext::Endpoint::Endpoint(ResendContext& context, EndpointId own_id)
    : id(own_id),
      sends(context.inner(), id, context.limits_, context.num_again_,
            [&context, this] {
              if (!why.ok()) context.Cut(*this);
            }),
      receives(id, context.handler(), context.limits_, context.counts_,
               [&context, this] { context.Answer(*this); }) {}

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
                  counts_.duplicates, " duplicates, ", counts_.reordered,
                  " reordered, ", counts_.harmed, " damaged");
  return info;
}

ResendContext::Endpoint* ResendContext::Find(EndpointId id) {
  const auto found = endpoints_.find(id);
  return found == endpoints_.end() ? nullptr : &found->second;
}

absl::StatusOr<EndpointId> ResendContext::Connect(absl::string_view address) {
  ASSIGN_OR_RETURN(const EndpointId id, inner().Connect(address));
  endpoints_.try_emplace(id, *this, id);
  return id;
}

void ResendContext::OnAccept(EndpointId endpoint) {
  endpoints_.try_emplace(endpoint, *this, endpoint);
  handler().OnAccept(endpoint);
}

absl::Status ResendContext::Send(EndpointId to, ConstBytes header,
                                 ConstBytes payload, SendDone done) {
  Endpoint* const endpoint = Find(to);
  if (endpoint == nullptr || !endpoint->why.ok()) return NotOpen(to);
  RETURN_IF_ERROR(CheckSizes(header, payload, max_header_bytes_));
  RETURN_IF_ERROR(CheckOnHost("resend", payload.device));
  endpoint->sends.Add(Kind::kMessage, header, payload, std::move(done), 0);
  return absl::OkStatus();
}

// The end is acknowledged as all before it, so that it tells for sure what was
// taken, where an answer may be lost. What has come and is not heard is taken.
void ResendContext::Close(EndpointId id) {
  Endpoint* const endpoint = Find(id);
  if (endpoint == nullptr || !endpoint->why.ok()) return;
  endpoint->why = absl::CancelledError("closed by this side");
  endpoint->close_by = Clock::now() + kCloseGrace;
  endpoint->sends.Add(Kind::kEnd, {}, {}, nullptr,
                      endpoint->receives.TakeUnheard());
}

void ResendContext::Cut(Endpoint& endpoint) {
  if (std::exchange(endpoint.is_closed, true)) return;
  endpoint.sends.Stop();
  inner().Close(endpoint.id);
}

void ResendContext::Fail(Endpoint& endpoint, const absl::Status& why) {
  if (why.ok()) return;
  if (endpoint.why.ok()) endpoint.why = why;
  Cut(endpoint);
}

// Within OnHeader, whose error closes the inner endpoint. Returns what OnClosed
// will say.
absl::Status ResendContext::Refuse(Endpoint& endpoint,
                                   const absl::Status& why) {
  if (endpoint.why.ok()) {
    endpoint.why =
        absl::CancelledError(absl::StrCat("message refused: ", why.message()));
  }
  endpoint.is_closed = true;
  endpoint.sends.Stop();
  return endpoint.why;
}

void ResendContext::OnClosed(EndpointId id, const absl::Status& why) {
  const auto node = endpoints_.extract(id);
  if (node.empty()) return;
  Endpoint& endpoint = node.mapped();
  const absl::Status reason = endpoint.why.ok() ? why : endpoint.why;
  endpoint.sends.Refuse(reason);
  handler().OnClosed(id, reason);
}

absl::StatusOr<Bytes> ResendContext::OnHeader(EndpointId from,
                                              ConstBytes header,
                                              size_t payload_bytes) {
  Endpoint& endpoint = *Find(from);
  if (endpoint.is_closed) return Forget(endpoint, {}, payload_bytes);
  const absl::StatusOr<Prefix> prefix = ParsePrefix(header, payload_bytes);
  if (absl::IsDataLoss(prefix.status())) {
    return TakeHarmed(endpoint, prefix.status(), payload_bytes);
  }
  if (!prefix.ok()) return Refuse(endpoint, prefix.status());
  endpoint.num_harmed = 0;
  if (!IsOfSender(prefix->kind)) {
    endpoint.arriving.push_back({.prefix = *prefix, .is_wanted = true});
    return Bytes();
  }
  const ConstBytes rest(header.data + kPrefixBytes, header.size - kPrefixBytes);
  absl::StatusOr<Bytes> target =
      BeginArriving(endpoint, *prefix, rest, payload_bytes);
  if (!target.ok()) return Refuse(endpoint, target.status());
  return target;
}

// Read, but nobody looks at it.
Bytes ResendContext::Forget(Endpoint& endpoint, const Prefix& prefix,
                            size_t payload_bytes) {
  endpoint.arriving.push_back({.prefix = prefix, .is_wanted = false});
  if (forgotten_.size() == 0) forgotten_ = Buffer(kMaxPayloadBytes);
  return {forgotten_.data(), payload_bytes};
}

absl::StatusOr<Bytes> ResendContext::TakeHarmed(Endpoint& endpoint,
                                                const absl::Status& why,
                                                size_t payload_bytes) {
  ++counts_.harmed;
  if (++endpoint.num_harmed == kMaxHarmedHeaders) {
    return Refuse(endpoint, absl::DataLossError(absl::StrCat(
                                kMaxHarmedHeaders,
                                " damaged headers, the last: ", why.message(),
                                "; has the peer resend, too?")));
  }
  endpoint.receives.AskAgain();
  return Forget(endpoint, {}, payload_bytes);
}

// Whoever has closed its side hears nothing more; the peer need not wait.
absl::StatusOr<Bytes> ResendContext::BeginArriving(Endpoint& endpoint,
                                                   const Prefix& prefix,
                                                   ConstBytes header,
                                                   size_t payload_bytes) {
  if (!endpoint.why.ok()) {
    endpoint.receives.TakeUnheard(prefix.sequence);
    if (prefix.kind == Kind::kEnd) {
      Fail(endpoint, endpoint.sends.TakeAcknowledgement(prefix.body));
    }
    Answer(endpoint);
    return Forget(endpoint, prefix, payload_bytes);
  }
  ASSIGN_OR_RETURN(const std::optional<Bytes> target,
                   endpoint.receives.Begin(prefix, header, payload_bytes));
  if (!target.has_value()) return Forget(endpoint, prefix, payload_bytes);
  endpoint.arriving.push_back({.prefix = prefix, .is_wanted = true});
  return *target;
}

void ResendContext::OnMessage(EndpointId from, ConstBytes, Bytes payload) {
  Endpoint& endpoint = *Find(from);
  const auto [prefix, is_wanted] = endpoint.arriving.front();
  endpoint.arriving.pop_front();
  if (endpoint.is_closed || !is_wanted) return;
  if (prefix.kind == Kind::kTaken) {
    Fail(endpoint, endpoint.sends.TakeAcknowledgement(prefix.sequence));
  } else if (prefix.kind == Kind::kAgain) {
    Fail(endpoint, endpoint.sends.TakeAgain(prefix));
  } else if (endpoint.why.ok() && endpoint.receives.HasCome(prefix, payload)) {
    Deliver(endpoint);
  }
}

void ResendContext::Deliver(Endpoint& endpoint) {
  ReceiveWindow& receives = endpoint.receives;
  while (endpoint.why.ok() && receives.is_next_here()) {
    const absl::Status begun = receives.BeginNext();
    if (!begun.ok()) {
      Fail(endpoint, absl::CancelledError(
                         absl::StrCat("message refused: ", begun.message())));
    }
    if (!endpoint.why.ok()) return;  // perhaps the handler's doing
    const ReceiveWindow::Message message = receives.PopNext();
    if (message.kind == Kind::kEnd) {
      Fail(endpoint, endpoint.sends.TakeAcknowledgement(message.body));
      continue;
    }
    handler().OnMessage(
        endpoint.id, message.header_view(),
        {message.target.data, message.payload_bytes, message.target.device});
  }
  if (endpoint.why.ok()) receives.AskIfLacking();
}

// At the end of this Progress, or at once after many.
void ResendContext::Answer(Endpoint& endpoint) {
  if (endpoint.receives.num_untold() >= kTakenPerAnswer) {
    return SendAnswer(endpoint);
  }
  if (std::exchange(endpoint.is_due, true)) return;
  due_.push_back(endpoint.id);
}

void ResendContext::SendAnswer(Endpoint& endpoint) {
  if (endpoint.is_closed) return;
  std::array<std::byte, kPrefixBytes> header;
  PackPrefix(endpoint.receives.Answer(), {}, header.data());
  (void)inner().Send(endpoint.id, {header.data(), header.size()}, {},
                     [](const absl::Status&) {});
}

bool ResendContext::HandleEvents(TimePoint* next) {
  const TimePoint now = Clock::now();
  for (auto& [id, endpoint] : endpoints_) {
    if (endpoint.is_closed) continue;
    if (!endpoint.why.ok()) {
      *next = std::min(*next, endpoint.close_by);
      if (endpoint.close_by <= now) Cut(endpoint);
    }
    if (!endpoint.is_closed) {
      Fail(endpoint, endpoint.sends.AdvanceTimer(now, next));
    }
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
