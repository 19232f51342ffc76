#include "transport/staged/staged_context.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace telegrad {

absl::StatusOr<std::unique_ptr<TransportContext>> MakeStagedTransport(
    const TransportFactory& make_inner, const TransportOptions& options,
    std::unique_ptr<kernels::DeviceCopier> copier, TransportHandler* handler,
    const StagedLimits& limits) {
  return staged::StagedContext::Make(make_inner, options, std::move(copier),
                                     handler, limits);
}

namespace staged {
namespace {

// A copy that ends wakes nobody; 64 KiB take about as long.
constexpr Duration kCopyNap = std::chrono::microseconds(5);

}  // namespace

StagedContext::StagedContext(std::unique_ptr<kernels::DeviceCopier> copier,
                             TransportHandler* handler,
                             const StagedLimits& limits)
    : ForwardingContext(handler),
      limits_(limits),
      ring_bytes_(kRingPieces * limits.piece_bytes),
      copier_(std::move(copier)),
      pool_(*copier_, limits.staging_bytes) {}

absl::StatusOr<std::unique_ptr<TransportContext>> StagedContext::Make(
    const TransportFactory& make_inner, const TransportOptions& options,
    std::unique_ptr<kernels::DeviceCopier> copier, TransportHandler* handler,
    const StagedLimits& limits) {
  std::unique_ptr<StagedContext> context(
      new StagedContext(std::move(copier), handler, limits));
  TransportOptions inner_options = options;
  inner_options.prefix_bytes = kPiecePrefixBytes;
  RETURN_IF_ERROR(context->MakeInner(make_inner, inner_options));
  return context;
}

TransportInfo StagedContext::info() const {
  TransportInfo info = inner().info();
  absl::StrAppend(&info.details, ", device memory ");
  if (inner().Takes(copier_->device())) {
    absl::StrAppend(&info.details, "straight");
  } else {
    absl::StrAppend(&info.details,
                    inner().TakesSome(copier_->device())
                        ? "of large messages straight, else "
                        : "",
                    "through pinned memory");
  }
  return info;
}

absl::Status StagedContext::CheckDevice(ConstBytes payload) const {
  if (IsDirect(payload) || payload.device.kind == copier_->device()) {
    return absl::OkStatus();
  }
  return absl::UnimplementedError("memory of a device that nobody copies");
}

absl::Status StagedContext::CopyError() const {
  return absl::InternalError(absl::StrCat(
      "a copy between device and host failed: ", copier_->error()));
}

StagedContext::Endpoint* StagedContext::Find(EndpointId id) {
  const auto found = endpoints_.find(id);
  return found == endpoints_.end() ? nullptr : &found->second;
}

absl::StatusOr<EndpointId> StagedContext::Connect(absl::string_view address) {
  ASSIGN_OR_RETURN(const EndpointId id, inner().Connect(address));
  endpoints_[id];
  return id;
}

void StagedContext::Close(EndpointId id) {
  Endpoint* const endpoint = Find(id);
  if (endpoint == nullptr || endpoint->is_closing || endpoint->is_gone) return;
  endpoint->is_closing = true;
  endpoint->close_by = Clock::now() + kCloseGrace;
  if (endpoint->sends.empty()) inner().Close(id);
  Activate(id, *endpoint);
}

void StagedContext::OnAccept(EndpointId endpoint) {
  endpoints_[endpoint];
  handler().OnAccept(endpoint);
}

// What has arrived is heard first, when it is where it belongs.
void StagedContext::OnClosed(EndpointId id, const absl::Status& why) {
  Endpoint& endpoint = endpoints_[id];
  endpoint.is_gone = true;
  if (endpoint.why.ok()) endpoint.why = why;
  Activate(id, endpoint);
}

void StagedContext::End(EndpointId id, Endpoint& endpoint, absl::Status why) {
  if (endpoint.why.ok()) endpoint.why = std::move(why);
  endpoint.is_closing = true;
  if (!endpoint.is_gone) inner().Close(id);
}

void StagedContext::StartCopy(Copy& copy, Bytes to, ConstBytes from) {
  copy.ticket = copier_->Start(to, from);
  copy.is_running = true;
  ++num_running_;
}

bool StagedContext::PollCopy(Copy& copy) {
  if (!copy.is_running) return false;
  const auto state = copier_->Poll(copy.ticket);
  if (state == kernels::DeviceCopier::State::kRunning) return true;
  copy.is_running = false;
  copy.has_failed = state == kernels::DeviceCopier::State::kFailed;
  --num_running_;
  return false;
}

void StagedContext::Drop(Copy& copy) {
  if (copy.buffer != nullptr) pool_.Put(std::exchange(copy.buffer, nullptr));
}

void StagedContext::Activate(EndpointId id, Endpoint& endpoint) {
  if (endpoint.is_active) return;
  endpoint.is_active = true;
  active_.push_back(id);
}

void StagedContext::AdvanceAll() {
  working_.swap(active_);
  for (const EndpointId id : working_) {
    Endpoint* const endpoint = Find(id);
    if (endpoint == nullptr) continue;
    endpoint->is_active = false;
    if (Advance(id, *endpoint)) Activate(id, *endpoint);
  }
  working_.clear();
}

bool StagedContext::Advance(EndpointId id, Endpoint& endpoint) {
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
            HasArrived(endpoint.receives.front()));
  }
  const absl::Status why = endpoint.why;
  endpoints_.erase(id);
  ++num_events_;
  handler().OnClosed(id, why);
  return false;
}

TimePoint StagedContext::NextLook(TimePoint deadline) const {
  if (num_running_ > 0) return std::min(deadline, Clock::now() + kCopyNap);
  for (const EndpointId id : active_) {
    const auto found = endpoints_.find(id);
    if (found != endpoints_.end() && found->second.is_closing &&
        !found->second.sends.empty()) {
      deadline = std::min(deadline, found->second.close_by);
    }
  }
  return deadline;
}

bool StagedContext::HandleEvents(TimePoint* next) {
  num_events_ = 0;
  AdvanceAll();
  *next = NextLook(*next);
  return num_events_ > 0;
}

// What has come is copied while the owner works on.
bool StagedContext::Progress(TimePoint deadline) {
  const bool has_any = ForwardingContext::Progress(deadline);
  AdvanceAll();
  return has_any || num_events_ > 0;
}

}  // namespace staged
}  // namespace telegrad
