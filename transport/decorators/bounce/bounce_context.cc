#include "transport/decorators/bounce/bounce_context.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "transport/send_checks.h"

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
      most_sending_bytes_(limits.staging_bytes),
      staging_{.copies = {std::move(copier), limits.staging_bytes},
               .fragment_bytes = limits.fragment_bytes,
               .ring_bytes = kRingFragments * limits.fragment_bytes} {}

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
  if (inner().Takes(staging_.copies.device())) {
    absl::StrAppend(&info.details, "straight");
  } else {
    absl::StrAppend(&info.details,
                    inner().TakesSome(staging_.copies.device())
                        ? "of large messages straight, else "
                        : "",
                    "through pinned memory");
  }
  return info;
}

absl::Status BounceContext::CheckDevice(ConstBytes payload) const {
  if (IsDirect(payload) || payload.device.kind == staging_.copies.device()) {
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
  endpoints_.try_emplace(id, id, staging_);
  return id;
}

void BounceContext::Close(EndpointId id) {
  Endpoint* const endpoint = Find(id);
  if (endpoint == nullptr || endpoint->is_closing || endpoint->is_gone) return;
  endpoint->is_closing = true;
  endpoint->close_by = Clock::now() + kCloseGrace;
  if (endpoint->sends.empty()) inner().Close(id);
  turns_.Add(*endpoint);
}

void BounceContext::OnAccept(EndpointId endpoint) {
  endpoints_.try_emplace(endpoint, endpoint, staging_);
  handler().OnAccept(endpoint);
}

// What has arrived is heard first, when it is where it belongs.
void BounceContext::OnClosed(EndpointId id, const absl::Status& why) {
  Endpoint& endpoint = *Find(id);
  endpoint.is_gone = true;
  if (endpoint.why.ok()) endpoint.why = why;
  turns_.Add(endpoint);
}

void BounceContext::End(Endpoint& endpoint, absl::Status why) {
  if (endpoint.why.ok()) endpoint.why = std::move(why);
  endpoint.is_closing = true;
  if (!endpoint.is_gone) inner().Close(endpoint.id);
}

void BounceContext::AdvanceAll() {
  const auto find = [this](EndpointId id) { return Find(id); };
  turns_.Take(find, [this](Endpoint& endpoint) {
    if (Advance(endpoint)) turns_.Add(endpoint);
  });
}

bool BounceContext::Advance(Endpoint& endpoint) {
  AdvanceReceives(endpoint);
  if (endpoint.is_closing && !endpoint.sends.empty() &&
      Clock::now() >= endpoint.close_by) {
    End(endpoint, absl::CancelledError("closed by this side"));
  }
  AdvanceSends(endpoint);
  if (CallDue()) ++num_events_;
  const bool is_idle = endpoint.sends.empty() && endpoint.receives.empty();
  if (!endpoint.is_gone || !is_idle) {
    return endpoint.is_gone || !endpoint.sends.empty() ||
           endpoint.receives.is_copying();
  }
  const EndpointId id = endpoint.id;
  const absl::Status why = endpoint.why;
  endpoints_.erase(id);
  ++num_events_;
  handler().OnClosed(id, why);
  return false;
}

absl::Status BounceContext::Send(EndpointId to, ConstBytes header,
                                 ConstBytes payload, SendDone done) {
  Endpoint* const endpoint = Find(to);
  if (endpoint == nullptr || endpoint->is_closing || endpoint->is_gone) {
    return NotOpen(to);
  }
  RETURN_IF_ERROR(CheckSizes(header, payload));
  RETURN_IF_ERROR(CheckDevice(payload));
  if (payload.size == 0) payload = {};  // an empty payload is on no device
  if (endpoint->sends.empty() && IsDirect(payload)) {
    return inner().Send(to, header, payload, std::move(done));
  }
  if (endpoint->sends.empty() && inner().TakesSome(payload.device.kind)) {
    const absl::Status sent = inner().Send(to, header, payload, done);
    if (!absl::IsUnimplemented(sent)) return sent;
  }
  const auto message = std::make_shared<Message>();
  message->whole.header_bytes = header.size;
  std::copy_n(header.data, header.size, message->whole.header.data());
  message->whole.payload_bytes = payload.size;
  message->payload = payload;
  message->done = std::move(done);
  const size_t most =
      IsDirect(payload) ? kMaxPayloadBytes : staging_.fragment_bytes;
  size_t offset = 0;
  do {
    const size_t size = std::min(payload.size - offset, most);
    Outgoing& fragment = endpoint->sends.emplace_back();
    fragment.message = message;
    fragment.payload = {payload.data + offset, size, payload.device};
    ++message->num_left;
    offset += size;
  } while (offset < payload.size);
  BeginCopies(*endpoint);
  turns_.Add(*endpoint);
  return absl::OkStatus();
}

// Only what is sent counts against the limit of all endpoints: it ends with the
// peer's help alone, so that nobody waits for one who waits for him.
void BounceContext::BeginCopies(Endpoint& endpoint) {
  for (Outgoing& fragment : endpoint.sends) {
    if (fragment.is_begun) continue;
    const size_t size = fragment.payload.size;
    if (!IsDirect(fragment.payload)) {
      if (endpoint.sending_bytes > 0 &&
          endpoint.sending_bytes + size > staging_.ring_bytes) {
        return;
      }
      const bool may_wait = sending_bytes_ > 0;
      if (may_wait && sending_bytes_ + size > most_sending_bytes_) return;
      fragment.copy.has_failed =
          !staging_.copies.TakeBuffer(fragment.copy, size);
      if (fragment.copy.has_failed && may_wait) return;
      if (!fragment.copy.has_failed) {
        sending_bytes_ += size;
        endpoint.sending_bytes += size;
        staging_.copies.Start(fragment.copy, {fragment.copy.buffer, size},
                              fragment.payload);
      }
    }
    fragment.is_begun = true;
  }
}

void BounceContext::AdvanceSends(Endpoint& endpoint) {
  if (!endpoint.why.ok()) return RefuseSends(endpoint);
  BeginCopies(endpoint);
  while (!endpoint.sends.empty()) {
    Outgoing& first = endpoint.sends.front();
    if (!first.is_begun || staging_.copies.Poll(first.copy)) return;
    if (first.copy.has_failed) {
      End(endpoint, staging_.copies.CopyError());
      return RefuseSends(endpoint);
    }
    Outgoing fragment = std::move(first);
    endpoint.sends.pop_front();
    Submit(endpoint.id, std::move(fragment));
  }
  if (endpoint.is_closing && !endpoint.is_gone) inner().Close(endpoint.id);
}

void BounceContext::Submit(EndpointId id, Outgoing fragment) {
  const Message& message = *fragment.message;
  ConstBytes payload = fragment.payload;
  if (fragment.copy.buffer != nullptr) {
    payload = {fragment.copy.buffer, fragment.payload.size};
  }
  FragmentHeader fragment_header = {};
  ConstBytes header = message.whole.header_view();
  if (fragment.payload.size < message.payload.size) {
    fragment_header = PackFragment(
        message.whole,
        static_cast<size_t>(fragment.payload.data - message.payload.data));
    header = {fragment_header.data(), fragment_header.size()};
  }
  const auto sent = std::make_shared<Outgoing>(std::move(fragment));
  Pass(id, header, payload, [this, id, sent](const absl::Status& status) {
    Finish(id, *sent, status);
  });
}

// The message is done with its last fragment, well if all of them were.
void BounceContext::Finish(EndpointId id, Outgoing& fragment,
                           const absl::Status& status) {
  if (fragment.copy.buffer != nullptr) {
    sending_bytes_ -= fragment.payload.size;
    if (Endpoint* const endpoint = Find(id)) {
      endpoint->sending_bytes -= fragment.payload.size;
    }
  }
  staging_.copies.Drop(fragment.copy);
  Message& message = *fragment.message;
  message.status.Update(status);
  if (--message.num_left > 0 || !message.done) return;
  std::exchange(message.done, nullptr)(message.status);
}

// A payload that is being copied is let go of afterwards.
void BounceContext::RefuseSends(Endpoint& endpoint) {
  while (!endpoint.sends.empty()) {
    Outgoing& first = endpoint.sends.front();
    if (staging_.copies.Poll(first.copy)) return;
    const auto refused = std::make_shared<Outgoing>(std::move(first));
    endpoint.sends.pop_front();
    Defer([this, id = endpoint.id, refused](
              const absl::Status& status) { Finish(id, *refused, status); },
          endpoint.why);
  }
}

absl::StatusOr<Bytes> BounceContext::OnHeader(EndpointId from,
                                              ConstBytes header,
                                              size_t payload_bytes) {
  Endpoint& endpoint = *Find(from);
  if (endpoint.is_closing) return endpoint.receives.AddUnheard(payload_bytes);
  Whole* const last = endpoint.receives.last();
  if (!IsFragment(header)) {
    if (last != nullptr) RETURN_IF_ERROR(CheckWhole(*last));
    Whole whole = {.header_bytes = header.size,
                   .payload_bytes = payload_bytes,
                   .begun = payload_bytes};
    std::copy_n(header.data, header.size, whole.header.data());
    return BeginMessage(endpoint, whole, payload_bytes);
  }
  ASSIGN_OR_RETURN(const Whole fragment, ParseFragment(header, payload_bytes));
  if (last == nullptr || last->is_whole()) {
    RETURN_IF_ERROR(CheckFirst(fragment, payload_bytes));
    return BeginMessage(endpoint, fragment, payload_bytes);
  }
  const Bytes target = endpoint.receives.TargetAt(last->begun, payload_bytes);
  RETURN_IF_ERROR(AddFragment(fragment, payload_bytes, last));
  return endpoint.receives.Add(target,
                               IsDirect(target) || inner().TakesNow(target));
}

// `size`: of its first fragment, or of all of it.
absl::StatusOr<Bytes> BounceContext::BeginMessage(Endpoint& endpoint,
                                                  const Whole& whole,
                                                  size_t size) {
  const size_t payload_bytes = whole.payload_bytes;
  ASSIGN_OR_RETURN(
      const Bytes target,
      handler().OnHeader(endpoint.id, whole.header_view(), payload_bytes));
  if (target.size < payload_bytes) {
    return absl::InternalError(absl::StrCat("OnHeader gave ", target.size,
                                            " bytes for ", payload_bytes));
  }
  RETURN_IF_ERROR(CheckDevice(target));
  const Bytes first(target.data, size, target.device);
  return endpoint.receives.Begin(
      {.whole = whole, .payload = {target.data, payload_bytes, target.device}},
      size, IsDirect(first) || inner().TakesNow(first));
}

void BounceContext::OnMessage(EndpointId from, ConstBytes, Bytes) {
  Endpoint& endpoint = *Find(from);
  endpoint.receives.HasCome();
  AdvanceReceives(endpoint);
  if (!endpoint.receives.empty()) turns_.Add(endpoint);
}

void BounceContext::AdvanceReceives(Endpoint& endpoint) {
  ReceiveQueue& receives = endpoint.receives;
  while (!receives.empty()) {
    // Whoever has closed its side hears nothing more.
    if (endpoint.is_closing) return receives.Drop(endpoint.is_gone);
    const absl::StatusOr<bool> is_here = receives.IsFirstHere();
    if (!is_here.ok()) {
      End(endpoint, is_here.status());
      continue;
    }
    if (!*is_here) {
      // What came behind it is not there either.
      if (endpoint.is_gone && !receives.is_copying()) receives.Drop(true);
      return;
    }
    const ReceiveQueue::Message message = receives.Pop();
    ++num_events_;
    handler().OnMessage(endpoint.id, message.whole.header_view(),
                        message.payload);
  }
}

TimePoint BounceContext::NextLook(TimePoint deadline) {
  if (staging_.copies.num_running() > 0) {
    return std::min(deadline, Clock::now() + kCopyNap);
  }
  for (const EndpointId id : turns_.waiting()) {
    const Endpoint* const endpoint = Find(id);
    if (endpoint != nullptr && endpoint->is_closing &&
        !endpoint->sends.empty()) {
      deadline = std::min(deadline, endpoint->close_by);
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
  if (staging_.ordinary_bytes > kMostOrdinaryBytes) {
    num_events_ = 0;
    AdvanceAll();
    if (num_events_ > 0) return true;
    if (staging_.ordinary_bytes > kMostOrdinaryBytes) {
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
