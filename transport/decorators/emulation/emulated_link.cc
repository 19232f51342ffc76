#include "transport/decorators/emulation/emulated_link.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/units.h"

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
    : DelayingContext(options, handler),
      bytes_per_s_(options.link_bytes_per_s),
      latency_(FromSeconds(options.link_latency_s)) {}

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

void EmulatedLinkContext::Enqueue(EndpointId to, DelayedMessage message,
                                  DelayedMessages& queue) {
  const auto bytes =
      static_cast<double>(message.header_bytes + message.payload.size);
  const double seconds = bytes_per_s_ > 0 ? bytes / bytes_per_s_ : 0;
  TimePoint& free_from = free_from_[to];
  free_from = std::max(free_from, Clock::now()) + FromSeconds(seconds);
  message.leaves = free_from + latency_;
  queue.push_back(std::move(message));
}

void EmulatedLinkContext::OnClosed(EndpointId id, const absl::Status& why) {
  free_from_.erase(id);
  DelayingContext::OnClosed(id, why);
}

}  // namespace link
}  // namespace telegrad
