#include "transport/link/link_context.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/units.h"
#include "transport/send_checks.h"

namespace telegrad {

absl::StatusOr<std::unique_ptr<TransportContext>> MakeLinkTransport(
    const TransportFactory& make_inner, const TransportOptions& options,
    TransportHandler* handler) {
  return link::LinkContext::Make(make_inner, options, handler);
}

namespace link {
namespace {

using Seconds = std::chrono::duration<double>;

// A Close waits for all that is on its way.
static_assert(Seconds(kMaxLinkLatencyS) < kCloseGrace);

}  // namespace

LinkContext::LinkContext(const TransportOptions& options,
                         TransportHandler* handler)
    : bytes_per_s_(options.link_bytes_per_s),
      latency_(FromSeconds(options.link_latency_s)),
      max_header_bytes_(MaxHeaderBytes(options)),
      handler_(handler) {}

absl::StatusOr<std::unique_ptr<TransportContext>> LinkContext::Make(
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
  std::unique_ptr<LinkContext> context(new LinkContext(options, handler));
  ASSIGN_OR_RETURN(context->inner_, make_inner(options, context.get()));
  return context;
}

TransportInfo LinkContext::info() const {
  TransportInfo info = inner_->info();
  absl::StrAppend(&info.details, ", emulated link of ");
  if (bytes_per_s_ > 0) {
    absl::StrAppend(&info.details, bytes_per_s_, " bytes/s");
  } else {
    absl::StrAppend(&info.details, "any rate");
  }
  if (latency_ > Duration::zero()) {
    absl::StrAppend(&info.details, ", ", Seconds(latency_).count(),
                    " s latency");
  }
  return info;
}

absl::StatusOr<EndpointId> LinkContext::Connect(absl::string_view address) {
  ASSIGN_OR_RETURN(const EndpointId id, inner_->Connect(address));
  endpoints_[id];
  return id;
}

absl::Status LinkContext::Send(EndpointId to, ConstBytes header,
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

void LinkContext::Close(EndpointId id) {
  const auto found = endpoints_.find(id);
  if (found == endpoints_.end() || found->second.is_closing) return;
  found->second.is_closing = true;
  found->second.close_by = Clock::now() + kCloseGrace;
  if (found->second.queue.empty()) inner_->Close(id);
}

void LinkContext::Release(EndpointId id, Endpoint& endpoint, TimePoint now) {
  while (!endpoint.queue.empty() && endpoint.queue.front().arrives <= now) {
    Message message = std::move(endpoint.queue.front());
    endpoint.queue.pop_front();
    // The inner endpoint may refuse without taking `done`.
    const auto done = std::make_shared<SendDone>(std::move(message.done));
    const absl::Status sent =
        inner_->Send(id, {message.header.data(), message.header_bytes},
                     message.payload, [done](const absl::Status& status) {
                       if (*done) (*done)(status);
                     });
    if (!sent.ok()) {
      refused_.push_back(
          {std::move(*done), absl::UnavailableError(sent.message())});
    }
  }
}

void LinkContext::Refuse(Endpoint& endpoint, const absl::Status& status) {
  for (Message& message : endpoint.queue) {
    refused_.push_back({std::move(message.done), status});
  }
  endpoint.queue.clear();
}

bool LinkContext::CallRefused() {
  const bool has_any = !refused_.empty();
  while (!refused_.empty()) {
    const Refused refused = std::move(refused_.front());
    refused_.pop_front();
    if (refused.done) refused.done(refused.status);
  }
  return has_any;
}

TimePoint LinkContext::ReleaseDue() {
  const TimePoint now = Clock::now();
  TimePoint next = TimePoint::max();
  for (auto& [id, endpoint] : endpoints_) {
    if (endpoint.queue.empty()) continue;
    Release(id, endpoint, now);
    if (endpoint.is_closing && endpoint.close_by <= now) {
      Refuse(endpoint, absl::CancelledError("closed by this side"));
    }
    if (!endpoint.queue.empty()) {
      next = std::min(next, endpoint.queue.front().arrives);
      if (endpoint.is_closing) next = std::min(next, endpoint.close_by);
    } else if (endpoint.is_closing) {
      inner_->Close(id);
    }
  }
  return next;
}

bool LinkContext::Progress(TimePoint deadline) {
  while (true) {
    const TimePoint next = ReleaseDue();
    if (CallRefused()) return true;
    if (inner_->Progress(std::min(deadline, next))) return true;
    if (is_woken_.exchange(false) || Clock::now() >= deadline) return false;
  }
}

void LinkContext::Wake() {
  is_woken_ = true;
  inner_->Wake();
}

void LinkContext::OnAccept(EndpointId endpoint) {
  endpoints_[endpoint];
  handler_->OnAccept(endpoint);
}

absl::StatusOr<Bytes> LinkContext::OnHeader(EndpointId from, ConstBytes header,
                                            size_t payload_bytes) {
  return handler_->OnHeader(from, header, payload_bytes);
}

void LinkContext::OnMessage(EndpointId from, ConstBytes header, Bytes payload) {
  handler_->OnMessage(from, header, payload);
}

void LinkContext::OnClosed(EndpointId id, const absl::Status& why) {
  const auto node = endpoints_.extract(id);
  if (!node.empty()) Refuse(node.mapped(), why);
  CallRefused();
  handler_->OnClosed(id, why);
}

}  // namespace link
}  // namespace telegrad
