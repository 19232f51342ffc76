#include "transport/decorators/emulation/emulated_link.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/units.h"
#include "transport/send_checks.h"

namespace telegrad {

absl::StatusOr<std::unique_ptr<TransportContext>> MakeEmulatedLink(
    const TransportFactory& make_inner, const TransportOptions& options,
    TransportHandler* handler) {
  return link::EmulatedLinkContext::Make(make_inner, options, handler);
}

namespace link {
namespace {

using Seconds = std::chrono::duration<double>;

// A Close waits for all that is on its way.
static_assert(Seconds(kMaxLinkLatencyS) < kCloseGrace);

}  // namespace

EmulatedLinkContext::EmulatedLinkContext(const TransportOptions& options,
                                         TransportHandler* handler)
    : ForwardingContext(handler),
      bytes_per_s_(options.link_bytes_per_s),
      latency_(FromSeconds(options.link_latency_s)),
      max_header_bytes_(MaxHeaderBytes(options)) {}

absl::StatusOr<std::unique_ptr<TransportContext>> EmulatedLinkContext::Make(
    const TransportFactory& make_inner, const TransportOptions& options,
    TransportHandler* handler) {
  // Slower ones overflow the clock with one message.
  constexpr double kMinBytesPerS = 1;
  constexpr double kMaxBytesPerS = 1e15;
  const double rate = options.link_bytes_per_s;
  if (rate != 0 && !(rate >= kMinBytesPerS && rate <= kMaxBytesPerS)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a link of ", rate, " bytes/s: expected ", kMinBytesPerS,
                     " to ", kMaxBytesPerS));
  }
  const double latency_s = options.link_latency_s;
  if (!(latency_s >= 0 && latency_s <= kMaxLinkLatencyS)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a link with a latency of ", latency_s,
                     " s: expected 0 to ", kMaxLinkLatencyS));
  }
  std::unique_ptr<EmulatedLinkContext> context(
      new EmulatedLinkContext(options, handler));
  RETURN_IF_ERROR(context->MakeInner(make_inner, options));
  return context;
}

TransportInfo EmulatedLinkContext::info() const {
  TransportInfo info = inner().info();
  absl::StrAppend(&info.details, ", emulated link of ");
  if (bytes_per_s_ > 0) {
    absl::StrAppend(&info.details, 8e-9 * bytes_per_s_, " Gb/s");
  } else {
    absl::StrAppend(&info.details, "any rate");
  }
  if (latency_ > Duration::zero()) {
    absl::StrAppend(&info.details, ", ", Seconds(latency_).count(),
                    " s latency");
  }
  return info;
}

absl::StatusOr<EndpointId> EmulatedLinkContext::Connect(
    absl::string_view address) {
  ASSIGN_OR_RETURN(const EndpointId id, inner().Connect(address));
  endpoints_[id];
  return id;
}

absl::Status EmulatedLinkContext::Send(EndpointId to, ConstBytes header,
                                       ConstBytes payload, SendDone done) {
  const auto found = endpoints_.find(to);
  if (found == endpoints_.end() || found->second.is_closing) {
    return NotOpen(to);
  }
  RETURN_IF_ERROR(CheckSizes(header, payload, max_header_bytes_));
  Endpoint& endpoint = found->second;
  const auto bytes = static_cast<double>(header.size + payload.size);
  const double seconds = bytes_per_s_ > 0 ? bytes / bytes_per_s_ : 0;
  endpoint.free_from =
      std::max(endpoint.free_from, Clock::now()) + FromSeconds(seconds);
  Message& message = endpoint.queue.emplace_back();
  message.arrives = endpoint.free_from + latency_;
  std::copy_n(header.data, header.size, message.header.data());
  message.header_bytes = header.size;
  message.payload = payload;
  message.done = std::move(done);
  return absl::OkStatus();
}

void EmulatedLinkContext::Close(EndpointId id) {
  const auto found = endpoints_.find(id);
  if (found == endpoints_.end() || found->second.is_closing) return;
  found->second.is_closing = true;
  found->second.close_by = Clock::now() + kCloseGrace;
  if (found->second.queue.empty()) inner().Close(id);
}

void EmulatedLinkContext::Release(EndpointId id, Endpoint& endpoint,
                                  TimePoint now) {
  while (!endpoint.queue.empty() && endpoint.queue.front().arrives <= now) {
    const Message message = std::move(endpoint.queue.front());
    endpoint.queue.pop_front();
    Pass(id, {message.header.data(), message.header_bytes}, message.payload,
         message.done);
  }
}

void EmulatedLinkContext::Refuse(Endpoint& endpoint,
                                 const absl::Status& status) {
  for (Message& message : endpoint.queue) {
    Defer(std::move(message.done), status);
  }
  endpoint.queue.clear();
}

bool EmulatedLinkContext::HandleEvents(TimePoint* next) {
  const TimePoint now = Clock::now();
  for (auto& [id, endpoint] : endpoints_) {
    if (endpoint.queue.empty()) continue;
    Release(id, endpoint, now);
    if (endpoint.is_closing && endpoint.close_by <= now) {
      Refuse(endpoint, absl::CancelledError("closed by this side"));
    }
    if (!endpoint.queue.empty()) {
      *next = std::min(*next, endpoint.queue.front().arrives);
      if (endpoint.is_closing) *next = std::min(*next, endpoint.close_by);
    } else if (endpoint.is_closing) {
      inner().Close(id);
    }
  }
  return CallDue();
}

void EmulatedLinkContext::OnAccept(EndpointId endpoint) {
  endpoints_[endpoint];
  handler().OnAccept(endpoint);
}

void EmulatedLinkContext::OnClosed(EndpointId id, const absl::Status& why) {
  const auto node = endpoints_.extract(id);
  if (!node.empty()) Refuse(node.mapped(), why);
  CallDue();
  handler().OnClosed(id, why);
}

}  // namespace link
}  // namespace telegrad
