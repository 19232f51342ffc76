#include "transport/decorators/bounce/bounce_context.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace telegrad {

absl::StatusOr<std::unique_ptr<TransportContext>> MakeBounceTransport(
    const TransportFactory& make_inner, const TransportOptions& options,
    std::unique_ptr<kernels::DeviceCopier> copier, TransportHandler* handler,
    const BounceLimits& limits) {
  return bounce::BounceContext::Make(make_inner, options, std::move(copier),
                                     handler, limits);
}

namespace bounce {
namespace {

// A copy that ends wakes nobody; 64 KiB take about as long.
constexpr Duration kCopyNap = std::chrono::microseconds(5);
// Beside the rings, of all endpoints.
constexpr size_t kMostOrdinaryBytes = 4 * kMaxPayloadBytes;

}  // namespace

BounceContext::BounceContext(std::unique_ptr<kernels::DeviceCopier> copier,
                             TransportHandler* handler,
                             const BounceLimits& limits)
    : ForwardingContext(handler),
      limits_(limits),
      ring_bytes_(kRingFragments * limits.fragment_bytes),
      copies_(std::move(copier), limits.staging_bytes) {}

absl::StatusOr<std::unique_ptr<TransportContext>> BounceContext::Make(
    const TransportFactory& make_inner, const TransportOptions& options,
    std::unique_ptr<kernels::DeviceCopier> copier, TransportHandler* handler,
    const BounceLimits& limits) {
  std::unique_ptr<BounceContext> context(
      new BounceContext(std::move(copier), handler, limits));
  TransportOptions inner_options = options;
  inner_options.prefix_bytes = kFragmentPrefixBytes;
  RETURN_IF_ERROR(context->MakeInner(make_inner, inner_options));
  return context;
}

TransportInfo BounceContext::info() const {
  TransportInfo info = inner().info();
  absl::StrAppend(&info.details, ", device memory ");
  if (inner().Takes(copies_.device())) {
    absl::StrAppend(&info.details, "straight");
  } else {
    absl::StrAppend(&info.details,
                    inner().TakesSome(copies_.device())
                        ? "of large messages straight, else "
                        : "",
                    "through pinned memory");
  }
  return info;
}

absl::Status BounceContext::CheckDevice(ConstBytes payload) const {
  if (IsDirect(payload) || payload.device.kind == copies_.device()) {
    return absl::OkStatus();
  }
  return absl::UnimplementedError("memory of a device that nobody copies");
}

BounceContext::Endpoint* BounceContext::Find(EndpointId id) {
  const auto found = endpoints_.find(id);
  return found == endpoints_.end() ? nullptr : &found->second;
}

absl::StatusOr<EndpointId> BounceContext::Connect(absl::string_view address) {
  ASSIGN_OR_RETURN(const EndpointId id, inner().Connect(address));
  endpoints_[id];
  return id;
}

void BounceContext::Close(EndpointId id) {
  Endpoint* const endpoint = Find(id);
  if (endpoint == nullptr || endpoint->is_closing || endpoint->is_gone) return;
  endpoint->is_closing = true;
  endpoint->close_by = Clock::now() + kCloseGrace;
  if (endpoint->sends.empty()) inner().Close(id);
  Activate(id, *endpoint);
}

void BounceContext::OnAccept(EndpointId endpoint) {
  endpoints_[endpoint];
  handler().OnAccept(endpoint);
}

// What has arrived is heard first, when it is where it belongs.
void BounceContext::OnClosed(EndpointId id, const absl::Status& why) {
  Endpoint& endpoint = endpoints_[id];
  endpoint.is_gone = true;
  if (endpoint.why.ok()) endpoint.why = why;
  Activate(id, endpoint);
}

void BounceContext::End(EndpointId id, Endpoint& endpoint, absl::Status why) {
  if (endpoint.why.ok()) endpoint.why = std::move(why);
  endpoint.is_closing = true;
  if (!endpoint.is_gone) inner().Close(id);
}

void BounceContext::Activate(EndpointId id, Endpoint& endpoint) {
  if (endpoint.is_active) return;
  endpoint.is_active = true;
  active_.push_back(id);
}

void BounceContext::AdvanceAll() {
  working_.swap(active_);
  for (const EndpointId id : working_) {
    Endpoint* const endpoint = Find(id);
    if (endpoint == nullptr) continue;
    endpoint->is_active = false;
    if (Advance(id, *endpoint)) Activate(id, *endpoint);
  }
  working_.clear();
}

bool BounceContext::Advance(EndpointId id, Endpoint& endpoint) {
  AdvanceReceives(id, endpoint);
  if (endpoint.is_closing && !endpoint.sends.empty() &&
      Clock::now() >= endpoint.close_by) {
    End(id, endpoint, absl::CancelledError("closed by this side"));
  }
  AdvanceSends(id, endpoint);
  if (CallDue()) ++num_events_;
  const bool is_idle = endpoint.sends.empty() && endpoint.receives.empty();
  if (!endpoint.is_gone || !is_idle) {
    return endpoint.is_gone || !endpoint.sends.empty() ||
           (!endpoint.receives.empty() &&
            endpoint.receives.front().has_arrived());
  }
  const absl::Status why = endpoint.why;
  endpoints_.erase(id);
  ++num_events_;
  handler().OnClosed(id, why);
  return false;
}

TimePoint BounceContext::NextLook(TimePoint deadline) const {
  if (copies_.num_running() > 0)
    return std::min(deadline, Clock::now() + kCopyNap);
  for (const EndpointId id : active_) {
    const auto found = endpoints_.find(id);
    if (found != endpoints_.end() && found->second.is_closing &&
        !found->second.sends.empty()) {
      deadline = std::min(deadline, found->second.close_by);
    }
  }
  return deadline;
}

bool BounceContext::HandleEvents(TimePoint* next) {
  num_events_ = 0;
  AdvanceAll();
  *next = NextLook(*next);
  return num_events_ > 0;
}

// What has come is copied while the owner works on. While too much waits for
// slow devices, nothing more is received.
bool BounceContext::Progress(TimePoint deadline) {
  if (ordinary_bytes_ > kMostOrdinaryBytes) {
    num_events_ = 0;
    AdvanceAll();
    if (num_events_ > 0) return true;
    if (ordinary_bytes_ > kMostOrdinaryBytes) {
      std::this_thread::sleep_for(kCopyNap);
      return false;
    }
  }
  const bool has_any = ForwardingContext::Progress(deadline);
  AdvanceAll();
  return has_any || num_events_ > 0;
}

}  // namespace bounce
}  // namespace telegrad
