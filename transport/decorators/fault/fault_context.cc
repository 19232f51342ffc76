#include "transport/decorators/fault/fault_context.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

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

absl::Status Killed() {
  return absl::UnavailableError("killed by the fault transport");
}

// Calls `done` after two calls, with the first error.
SendDone AfterBoth(SendDone done) {
  struct State {
    int left = 2;
    SendDone done;
    absl::Status status;
  };
  auto state = std::make_shared<State>();
  state->done = std::move(done);
  return [state](const absl::Status& status) {
    state->status.Update(status);
    if (--state->left == 0 && state->done) state->done(state->status);
  };
}

// The caller's payload is borrowed, not ours to change: one that is, is copied.
void Flip(uint64_t bit, DelayedMessage& message) {
  bit %= 8 * (message.header_bytes + message.payload.size);
  const auto mask = static_cast<std::byte>(1 << bit % 8);
  const size_t place = bit / 8;
  if (place < message.header_bytes) {
    message.header[place] ^= mask;
    return;
  }
  const auto copy = std::make_shared<std::vector<std::byte>>(
      message.payload.data, message.payload.data + message.payload.size);
  (*copy)[place - message.header_bytes] ^= mask;
  message.payload = {copy->data(), copy->size()};
  message.done = [copy,
                  done = std::move(message.done)](const absl::Status& status) {
    if (done) done(status);
  };
}

// The order stays.
void PutLast(DelayedMessages& queue, DelayedMessage message) {
  if (!queue.empty()) {
    message.leaves = std::max(message.leaves, queue.back().leaves);
  }
  queue.push_back(std::move(message));
}

}  // namespace

absl::StatusOr<std::unique_ptr<TransportContext>> FaultContext::Make(
    const TransportFactory& make_inner, const TransportOptions& options,
    TransportHandler* handler) {
  ASSIGN_OR_RETURN(const Spec spec, ParseSpec(options.fault));
  std::unique_ptr<FaultContext> context(
      new FaultContext(spec, options, handler));
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

void FaultContext::AddLink(EndpointId id, bool is_accepted) {
  links_[id].number = 2 * num_links_[is_accepted]++ + is_accepted;
}

absl::StatusOr<EndpointId> FaultContext::Connect(absl::string_view address) {
  ASSIGN_OR_RETURN(const EndpointId id, DelayingContext::Connect(address));
  AddLink(id, /*is_accepted=*/false);
  return id;
}

absl::Status FaultContext::Send(EndpointId to, ConstBytes header,
                                ConstBytes payload, SendDone done) {
  RETURN_IF_ERROR(CheckOnHost("fault", payload.device));
  return DelayingContext::Send(to, header, payload, std::move(done));
}

void FaultContext::Enqueue(EndpointId to, DelayedMessage message,
                           DelayedMessages& queue) {
  Link& link = links_[to];
  const Fate fate = DrawFate(spec_, link.number, link.num_sent++);
  Harm(link, fate, std::move(message), queue);
  if (!Count(fate, Fault::kKill)) return;
  link.is_killed = true;
  Cut(to, Killed());
}

bool FaultContext::Count(const Fate& fate, Fault fault) {
  if (!fate.has(fault)) return false;
  ++counts_[static_cast<size_t>(fault)];
  return true;
}

void FaultContext::Harm(Link& link, const Fate& fate, DelayedMessage message,
                        DelayedMessages& queue) {
  if (Count(fate, Fault::kDrop)) {
    return Defer(std::move(message.done), absl::OkStatus());
  }
  const bool has_bits = message.header_bytes + message.payload.size > 0;
  if (has_bits && Count(fate, Fault::kFlip)) Flip(fate.bit, message);
  message.leaves = Clock::now();
  if (Count(fate, Fault::kDelay)) message.leaves += spec_.delay;
  const bool is_twice = Count(fate, Fault::kDuplicate);
  if (is_twice) message.done = AfterBoth(std::move(message.done));
  std::optional<DelayedMessage> held;
  if (std::exchange(link.holds_last, false) && !queue.empty()) {
    held = std::move(queue.back());
    queue.pop_back();
    held->leaves = message.leaves;
  } else if (Count(fate, Fault::kReorder)) {
    link.holds_last = true;
    message.leaves += kReorderWait;
  }
  if (is_twice) PutLast(queue, message);
  PutLast(queue, std::move(message));
  if (held.has_value()) PutLast(queue, *std::move(held));
}

void FaultContext::OnAccept(EndpointId endpoint) {
  AddLink(endpoint, /*is_accepted=*/true);
  DelayingContext::OnAccept(endpoint);
}

void FaultContext::OnClosed(EndpointId id, const absl::Status& why) {
  const auto link = links_.extract(id);
  const bool is_killed = !link.empty() && link.mapped().is_killed;
  DelayingContext::OnClosed(id, is_killed ? Killed() : why);
}

}  // namespace fault
}  // namespace telegrad
