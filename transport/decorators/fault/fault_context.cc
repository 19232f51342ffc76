#include "transport/decorators/fault/fault_context.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "transport/send_checks.h"

namespace telegrad {

absl::StatusOr<std::unique_ptr<TransportContext>> MakeFaultTransport(
    const TransportFactory& make_inner, const TransportOptions& options,
    TransportHandler* handler) {
  return fault::FaultContext::Make(make_inner, options, handler);
}

namespace fault {
namespace {

// A reordered message waits at most so long for another one to pass it.
constexpr Duration kReorderWait = std::chrono::milliseconds(20);

// Calls `done` after `count` calls, with the first error.
SendDone AfterAll(int count, SendDone done) {
  struct State {
    int left;
    SendDone done;
    absl::Status status;
  };
  auto state =
      std::make_shared<State>(State{count, std::move(done), absl::OkStatus()});
  return [state](const absl::Status& status) {
    state->status.Update(status);
    if (--state->left == 0 && state->done) state->done(state->status);
  };
}

}  // namespace

absl::StatusOr<std::unique_ptr<TransportContext>> FaultContext::Make(
    const TransportFactory& make_inner, const TransportOptions& options,
    TransportHandler* handler) {
  ASSIGN_OR_RETURN(const Spec spec, ParseSpec(options.fault));
  std::unique_ptr<FaultContext> context(
      new FaultContext(spec, MaxHeaderBytes(options), handler));
  RETURN_IF_ERROR(context->MakeInner(make_inner, options));
  return context;
}

TransportInfo FaultContext::info() const {
  TransportInfo info = inner().info();
  absl::StrAppend(&info.details, ", faults ", FormatSpec(spec_), ":");
  for (size_t i = 0; i < kNumFaults; ++i) {
    absl::StrAppend(&info.details, " ", kFaultNames[i], " ", counts_[i]);
  }
  return info;
}

void FaultContext::AddEndpoint(EndpointId id, bool is_accepted) {
  endpoints_[id].link = 2 * num_links_[is_accepted]++ + is_accepted;
}

absl::StatusOr<EndpointId> FaultContext::Connect(absl::string_view address) {
  ASSIGN_OR_RETURN(const EndpointId id, inner().Connect(address));
  AddEndpoint(id, /*is_accepted=*/false);
  return id;
}

absl::Status FaultContext::Send(EndpointId to, ConstBytes header,
                                ConstBytes payload, SendDone done) {
  const auto found = endpoints_.find(to);
  if (found == endpoints_.end() || found->second.is_closing) {
    return NotOpen(to);
  }
  RETURN_IF_ERROR(CheckSizes(header, payload, max_header_bytes_));
  RETURN_IF_ERROR(CheckOnHost("fault", payload.device));
  Message message;
  std::copy_n(header.data, header.size, message.header.data());
  message.header_bytes = header.size;
  message.payload = payload;
  message.done = std::move(done);
  Endpoint& endpoint = found->second;
  const Fate fate = DrawFate(spec_, endpoint.link, endpoint.num_sent++);
  Harm(endpoint, fate, std::move(message));
  if (Count(fate, Fault::kKill)) Kill(to, endpoint);
  return absl::OkStatus();
}

bool FaultContext::Count(const Fate& fate, Fault fault) {
  if (!fate.has(fault)) return false;
  ++counts_[static_cast<size_t>(fault)];
  return true;
}

void FaultContext::Harm(Endpoint& endpoint, const Fate& fate, Message message) {
  if (Count(fate, Fault::kDrop)) {
    Defer(std::move(message.done), absl::OkStatus());
    return;
  }
  const bool has_bits = message.header_bytes + message.payload.size > 0;
  if (has_bits && Count(fate, Fault::kFlip)) Flip(fate.bit, &message);
  message.leaves = Clock::now();
  if (Count(fate, Fault::kDelay)) message.leaves += spec_.delay;
  message.is_twice = Count(fate, Fault::kDuplicate);
  if (endpoint.held.empty() && Count(fate, Fault::kReorder)) {
    message.leaves += kReorderWait;
    endpoint.held.push_back(std::move(message));
    return;
  }
  Enqueue(endpoint, std::move(message));
  if (endpoint.held.empty()) return;
  endpoint.held.front().leaves = Clock::now();
  Enqueue(endpoint, std::move(endpoint.held.front()));
  endpoint.held.clear();
}

void FaultContext::Enqueue(Endpoint& endpoint, Message message) {
  if (!endpoint.queue.empty()) {  // the order stays
    message.leaves = std::max(message.leaves, endpoint.queue.back().leaves);
  }
  endpoint.queue.push_back(std::move(message));
}

// The caller's payload is borrowed, not ours to change.
void FaultContext::Flip(uint64_t bit, Message* message) {
  bit %= 8 * (message->header_bytes + message->payload.size);
  const auto mask = static_cast<std::byte>(1 << bit % 8);
  const size_t place = bit / 8;
  if (place < message->header_bytes) {
    message->header[place] ^= mask;
    return;
  }
  message->copy = std::make_shared<std::vector<std::byte>>(
      message->payload.data, message->payload.data + message->payload.size);
  (*message->copy)[place - message->header_bytes] ^= mask;
  message->payload = {message->copy->data(), message->copy->size()};
}

void FaultContext::Kill(EndpointId id, Endpoint& endpoint) {
  endpoint.is_closing = endpoint.is_killed = true;
  Refuse(endpoint, absl::UnavailableError("killed by the fault transport"));
  inner().Close(id);
}

void FaultContext::Close(EndpointId id) {
  const auto found = endpoints_.find(id);
  if (found == endpoints_.end() || found->second.is_closing) return;
  Endpoint& endpoint = found->second;
  endpoint.is_closing = true;
  endpoint.close_by = Clock::now() + kCloseGrace;
  for (Message& message : endpoint.held) {
    Enqueue(endpoint, std::move(message));
  }
  endpoint.held.clear();
  if (endpoint.queue.empty()) inner().Close(id);
}

void FaultContext::Forward(EndpointId id, Message message) {
  const int count = message.is_twice ? 2 : 1;
  const SendDone done =
      AfterAll(count, [copy = message.copy, done = std::move(message.done)](
                          const absl::Status& status) {
        if (done) done(status);
      });
  for (int i = 0; i < count; ++i) {
    Pass(id, {message.header.data(), message.header_bytes}, message.payload,
         done);
  }
}

void FaultContext::Release(EndpointId id, Endpoint& endpoint, TimePoint now) {
  if (!endpoint.held.empty() && endpoint.held.front().leaves <= now) {
    Enqueue(endpoint, std::move(endpoint.held.front()));
    endpoint.held.clear();
  }
  while (!endpoint.queue.empty() && endpoint.queue.front().leaves <= now) {
    Message message = std::move(endpoint.queue.front());
    endpoint.queue.pop_front();
    Forward(id, std::move(message));
  }
}

void FaultContext::Refuse(Endpoint& endpoint, const absl::Status& status) {
  for (auto* messages : {&endpoint.queue, &endpoint.held}) {
    for (Message& message : *messages) {
      Defer(std::move(message.done), status);
    }
    messages->clear();
  }
}

bool FaultContext::HandleEvents(TimePoint* next) {
  const TimePoint now = Clock::now();
  for (auto& [id, endpoint] : endpoints_) {
    if (endpoint.queue.empty() && endpoint.held.empty()) continue;
    Release(id, endpoint, now);
    if (endpoint.is_closing && endpoint.close_by <= now) {
      Refuse(endpoint, absl::CancelledError("closed by this side"));
    }
    if (!endpoint.held.empty()) {
      *next = std::min(*next, endpoint.held.front().leaves);
    }
    if (!endpoint.queue.empty()) {
      *next = std::min(*next, endpoint.queue.front().leaves);
      if (endpoint.is_closing) *next = std::min(*next, endpoint.close_by);
    } else if (endpoint.is_closing) {
      inner().Close(id);
    }
  }
  return CallDue();
}

void FaultContext::OnAccept(EndpointId endpoint) {
  AddEndpoint(endpoint, /*is_accepted=*/true);
  handler().OnAccept(endpoint);
}

void FaultContext::OnClosed(EndpointId id, const absl::Status& why) {
  auto node = endpoints_.extract(id);
  absl::Status reason = why;
  if (!node.empty()) {
    if (node.mapped().is_killed) {
      reason = absl::UnavailableError("killed by the fault transport");
    }
    Refuse(node.mapped(), reason);
  }
  CallDue();
  handler().OnClosed(id, reason);
}

}  // namespace fault
}  // namespace telegrad
