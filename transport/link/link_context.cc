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
// Copies beside those that the rate allows: what no rate holds back, and what
// the receiver has not taken.
constexpr size_t kMaxExtraBytes = size_t{8} << 20;

}  // namespace

LinkContext::Copy::Copy(ConstBytes payload, std::shared_ptr<size_t> all)
    : num_bytes(payload.size + sizeof(Message)),
      bytes(std::make_unique_for_overwrite<std::byte[]>(payload.size)),
      total(std::move(all)) {
  std::copy_n(payload.data, payload.size, bytes.get());
  *total += num_bytes;
}

LinkContext::Copy::~Copy() { *total -= num_bytes; }

LinkContext::LinkContext(const TransportOptions& options,
                         TransportHandler* handler)
    : bytes_per_s_(options.link_bytes_per_s),
      latency_(FromSeconds(options.link_latency_s)),
      max_copied_bytes_(kMaxExtraBytes +
                        static_cast<size_t>(options.link_bytes_per_s *
                                            options.link_latency_s)),
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
  RETURN_IF_ERROR(CheckOnHost("link", payload.device));
  Endpoint& endpoint = found->second;
  const auto bytes = static_cast<double>(header.size + payload.size);
  const double seconds = bytes_per_s_ > 0 ? bytes / bytes_per_s_ : 0;
  endpoint.free_from =
      std::max(endpoint.free_from, Clock::now()) + FromSeconds(seconds);
  Message& message = endpoint.queue.emplace_back();
  message.leaves = endpoint.free_from;
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

void LinkContext::Leave(Endpoint& endpoint, TimePoint now) {
  if (latency_ == Duration::zero()) return;  // Release does it
  for (; endpoint.num_left < endpoint.queue.size(); ++endpoint.num_left) {
    Message& message = endpoint.queue[endpoint.num_left];
    if (message.leaves > now) return;
    // What a Close may yet cut must not have been called sent.
    if (endpoint.is_closing) continue;
    if (*endpoint.copied_bytes + message.payload.size > max_copied_bytes_) {
      continue;
    }
    message.copy =
        std::make_shared<Copy>(message.payload, endpoint.copied_bytes);
    message.payload = {message.copy->bytes.get(), message.payload.size};
    due_.push_back({std::exchange(message.done, nullptr), absl::OkStatus()});
  }
}

void LinkContext::Release(EndpointId id, Endpoint& endpoint, TimePoint now) {
  while (!endpoint.queue.empty() &&
         endpoint.queue.front().leaves + latency_ <= now) {
    Message message = std::move(endpoint.queue.front());
    endpoint.queue.pop_front();
    if (endpoint.num_left > 0) --endpoint.num_left;
    // The inner endpoint may refuse without taking `done`.
    const auto done = std::make_shared<SendDone>(std::move(message.done));
    const absl::Status sent = inner_->Send(
        id, {message.header.data(), message.header_bytes}, message.payload,
        [done, copy = message.copy](const absl::Status& status) {
          if (*done) (*done)(status);
        });
    if (!sent.ok()) {
      due_.push_back(
          {std::move(*done), absl::UnavailableError(sent.message())});
    }
  }
}

void LinkContext::Refuse(Endpoint& endpoint, const absl::Status& status) {
  for (Message& message : endpoint.queue) {
    due_.push_back({std::move(message.done), status});
  }
  endpoint.queue.clear();
  endpoint.num_left = 0;
}

bool LinkContext::CallDue() {
  const bool has_any = !due_.empty();
  while (!due_.empty()) {
    const Due due = std::move(due_.front());
    due_.pop_front();
    if (due.done) due.done(due.status);
  }
  return has_any;
}

TimePoint LinkContext::NextOf(const Endpoint& endpoint) const {
  TimePoint next = endpoint.queue.front().leaves + latency_;
  if (latency_ > Duration::zero() &&
      endpoint.num_left < endpoint.queue.size()) {
    next = std::min(next, endpoint.queue[endpoint.num_left].leaves);
  }
  return endpoint.is_closing ? std::min(next, endpoint.close_by) : next;
}

TimePoint LinkContext::MoveDue() {
  const TimePoint now = Clock::now();
  TimePoint next = TimePoint::max();
  for (auto& [id, endpoint] : endpoints_) {
    if (endpoint.queue.empty()) continue;
    Leave(endpoint, now);
    Release(id, endpoint, now);
    if (endpoint.is_closing && endpoint.close_by <= now) {
      Refuse(endpoint, absl::CancelledError("closed by this side"));
    }
    if (!endpoint.queue.empty()) {
      next = std::min(next, NextOf(endpoint));
    } else if (endpoint.is_closing) {
      inner_->Close(id);
    }
  }
  return next;
}

bool LinkContext::Progress(TimePoint deadline) {
  while (true) {
    const TimePoint next = MoveDue();
    if (CallDue()) return true;
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
  CallDue();
  handler_->OnClosed(id, why);
}

}  // namespace link
}  // namespace telegrad
