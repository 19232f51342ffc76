#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "transport/ofi/ofi_context.h"
#include "transport/send_checks.h"

// Records into messages.
namespace telegrad::ofi {
namespace {

// Completions may come out of order; a peer whose records are further apart
// than its slots allow is broken.
constexpr uint32_t kReorderWindow = 256;
// That wait behind a large one.
constexpr size_t kMaxIncoming = 65536;
constexpr int kMaxPolls = 4;  // of the queue, until all else has its turn

}  // namespace

// Handlers may answer at once, and their peers too: so without a bound the
// queue might never be empty.
void OfiContext::HandleCompletions() {
  int num_polls = 0;
  do {
    completions_.clear();
    fabric_->Poll(&completions_);
    num_moved_ += completions_.size();
    for (const Completion& completion : completions_) {
      Slot* slot = completion.slot;
      if (slot->role == Role::kLaneReceive) {
        HandleLaneReceived(completion);
      } else if (slot->role != Role::kReceive) {
        HandleSent(slot, completion.error);
      } else {
        // An error: too long to be one of our records.
        if (completion.error == 0) {
          HandleReceived({slot->bytes, completion.num_bytes});
        }
        fabric_->Receive(slot);
      }
    }
  } while (!completions_.empty() && ++num_polls < kMaxPolls);
}

void OfiContext::HandleReceived(ConstBytes bytes) {
  const std::optional<Record> record =
      ParseRecord(bytes, MaxHeaderBytes(options_));
  Endpoint* endpoint =
      record.has_value() ? endpoints_.Find(record->to) : nullptr;
  if (endpoint == nullptr || endpoint->token != record->token) {
    ++num_strays_;  // whoever sent it is not a peer, or not any more
    return;
  }
  if (endpoint->state == State::kFailed || !endpoint->is_announced) return;
  TakeInOrder(*endpoint, *record, bytes);
}

void OfiContext::TakeInOrder(Endpoint& endpoint, const Record& record,
                             ConstBytes bytes) {
  const uint32_t ahead = record.sequence - endpoint.next_to_hear;
  if (ahead != 0) {
    const bool is_new =
        ahead < kReorderWindow &&
        endpoint.early
            .try_emplace(record.sequence, bytes.data, bytes.data + bytes.size)
            .second;
    if (!is_new) FailProtocol(endpoint, "a record out of order");
    return;
  }
  Take(endpoint, record);
  while (!endpoint.early.empty() && endpoint.state != State::kFailed) {
    const auto first = endpoint.early.find(endpoint.next_to_hear);
    if (first == endpoint.early.end()) return;
    const std::vector<std::byte> kept = std::move(first->second);
    endpoint.early.erase(first);
    Take(endpoint,
         *ParseRecord({kept.data(), kept.size()}, MaxHeaderBytes(options_)));
  }
}

void OfiContext::Take(Endpoint& endpoint, const Record& record) {
  ++endpoint.next_to_hear;
  switch (record.kind) {
    case Kind::kData:
      if (endpoint.state == State::kOpen) TakeData(endpoint, record);
      return;
    case Kind::kLarge:
      return TakeLarge(endpoint, record);
    case Kind::kGoodbye:
      if (IsInMessage(endpoint)) {
        return FailProtocol(endpoint, "a goodbye within a message");
      }
      endpoint.incoming.push_back({.kind = Kind::kGoodbye, .is_whole = true});
      return Deliver(endpoint);
    case Kind::kGoodbyeAck:
      endpoint.is_acknowledged = true;
      return;
    case Kind::kOffer:
      return TakeOffer(endpoint, record.header);
    case Kind::kAccept:
      return TakeAccept(endpoint, record.header);
    case Kind::kTaken:
      return TakeTaken(endpoint);
  }
}

bool OfiContext::IsInMessage(const Endpoint& endpoint) {
  if (endpoint.incoming.empty() || endpoint.state != State::kOpen) return false;
  const Incoming& last = endpoint.incoming.back();
  return last.kind == Kind::kData && !last.is_whole;
}

// Null: the message was refused, or the endpoint is not open.
Incoming* OfiContext::Begin(Endpoint& endpoint, const Record& record) {
  if (endpoint.state != State::kOpen) return nullptr;
  if (endpoint.incoming.size() >= kMaxIncoming) {
    FailProtocol(endpoint, "too many messages behind one that does not come");
    return nullptr;
  }
  ++num_events_;
  is_in_large_header_ = record.kind == Kind::kLarge && !fabric_->is_shm();
  absl::StatusOr<Bytes> target =
      handler_->OnHeader(endpoint.id, record.header, record.payload_bytes);
  is_in_large_header_ = false;
  auto registration = std::exchange(asked_for_, std::nullopt);
  if (endpoint.state != State::kOpen) return nullptr;
  CheckTarget(target, record.payload_bytes, registration.has_value());
  if (!target.ok()) {
    Fail(endpoint, absl::CancelledError(absl::StrCat(
                       "message refused: ", target.status().message())));
    return nullptr;
  }
  Incoming& message = endpoint.incoming.emplace_back();
  message.kind = record.kind;
  std::copy_n(record.header.data, record.header.size, message.header.data());
  message.header_bytes = record.header.size;
  message.payload_bytes = record.payload_bytes;
  message.target = *target;
  if (registration.has_value()) message.registration = *std::move(registration);
  return &message;
}

void OfiContext::TakeData(Endpoint& endpoint, const Record& record) {
  const bool is_begun = IsInMessage(endpoint);
  if (record.offset == 0 && !is_begun) {
    if (Begin(endpoint, record) == nullptr) return;
  } else if (!is_begun || record.offset != endpoint.incoming.back().received ||
             record.payload_bytes != endpoint.incoming.back().payload_bytes) {
    return FailProtocol(endpoint, "a record of another message");
  }
  Incoming& message = endpoint.incoming.back();
  std::copy_n(record.data.data, record.data.size,
              message.target.data + message.received);
  message.received += record.data.size;
  message.is_whole = message.received == message.payload_bytes;
  if (message.is_whole) Deliver(endpoint);
}

// In their order: small messages wait behind a large one. After Close nothing
// is heard but the goodbye, once libfabric has no memory of the user any more.
void OfiContext::Deliver(Endpoint& endpoint) {
  while (!endpoint.incoming.empty() && endpoint.state != State::kFailed) {
    Incoming& message = endpoint.incoming.front();
    if (message.kind == Kind::kGoodbye) {
      endpoint.incoming.pop_front();
      ReceiveGoodbye(endpoint);
      continue;
    }
    const bool is_open = endpoint.state == State::kOpen;
    if (is_open ? !message.is_whole : message.is_in_lane) return;
    if (is_open) {
      ++num_events_;
      handler_->OnMessage(
          endpoint.id, {message.header.data(), message.header_bytes},
          {message.target.data, message.payload_bytes, message.target.device});
    }
    endpoint.incoming.pop_front();
  }
}

void OfiContext::FailProtocol(Endpoint& endpoint, absl::string_view what) {
  Fail(endpoint, absl::UnavailableError(
                     absl::StrCat("the peer breaks the protocol: ", what)));
}

}  // namespace telegrad::ofi
