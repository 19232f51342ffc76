#include "transport/decorators/resend/receive_window.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/crc32c.h"
#include "base/status_macros.h"
#include "transport/send_checks.h"

namespace telegrad::resend {

absl::StatusOr<std::optional<Bytes>> ReceiveWindow::Begin(
    const Prefix& prefix, ConstBytes header, size_t payload_bytes) {
  const uint32_t place = prefix.sequence - taken_;
  const bool is_past = IsBefore(prefix.sequence, taken_);
  if (!is_past && place >= limits_.window_messages) {
    AskAgain();
    return std::nullopt;
  }
  if (!is_past && incoming_.size() <= place) incoming_.resize(place + 1);
  if (is_past || incoming_[place].state != State::kLacking) {
    ++counts_.duplicates;
    answer_();
    return std::nullopt;
  }
  RETURN_IF_ERROR(Describe(incoming_[place], prefix, header, payload_bytes));
  return Place(place, payload_bytes);
}

absl::Status ReceiveWindow::Describe(Incoming& incoming, const Prefix& prefix,
                                     ConstBytes header, size_t payload_bytes) {
  Message& message = incoming.message;
  if (incoming.is_begun) {  // it was harmed
    if (message.payload_bytes == payload_bytes && message.kind == prefix.kind &&
        std::ranges::equal(header.span(), message.header_view().span())) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(
        absl::StrCat("two messages ", prefix.sequence));
  }
  message.kind = prefix.kind;
  message.body = prefix.body;
  message.header_bytes = header.size;
  std::copy_n(header.data, header.size, message.header.data());
  message.payload_bytes = payload_bytes;
  return absl::OkStatus();
}

absl::StatusOr<std::optional<Bytes>> ReceiveWindow::Place(
    size_t place, size_t payload_bytes) {
  Incoming& incoming = incoming_[place];
  if (incoming.is_begun) {
    --num_lacking_;
    incoming.state = State::kArriving;
    return incoming.message.target;
  }
  if (place == num_begun_ && num_lacking_ == 0) {
    incoming.state = State::kArriving;
    RETURN_IF_ERROR(BeginFirst(incoming));
    return incoming.message.target;
  }
  AskIfLacking();
  if (held_bytes_ + payload_bytes > limits_.window_bytes) return std::nullopt;
  ASSIGN_OR_RETURN(incoming.held, Buffer::Create(payload_bytes));
  ++counts_.reordered;
  held_bytes_ += payload_bytes;
  incoming.state = State::kArriving;
  return incoming.held.view();
}

// Begins the first of those that the handler has not heard of.
absl::Status ReceiveWindow::BeginFirst(Incoming& incoming) {
  Message& message = incoming.message;
  if (message.kind == Kind::kMessage) {
    ASSIGN_OR_RETURN(message.target,
                     handler_.OnHeader(endpoint_, message.header_view(),
                                       message.payload_bytes));
    RETURN_IF_ERROR(CheckTarget(message.target, message.payload_bytes));
  }
  incoming.is_begun = true;
  ++num_begun_;
  return absl::OkStatus();
}

bool ReceiveWindow::HasCome(const Prefix& prefix, Bytes payload) {
  Incoming& incoming = incoming_[prefix.sequence - taken_];
  if (prefix.kind == Kind::kEnd ||
      Crc32c(payload.data, payload.size) == prefix.body) {
    incoming.state = State::kHere;
    return true;
  }
  ++counts_.harmed;
  incoming.state = State::kLacking;
  if (incoming.is_begun) {
    ++num_lacking_;
  } else {
    held_bytes_ -= incoming.held.size();
    incoming.held = Buffer();
  }
  AskAgain();
  return false;
}

absl::Status ReceiveWindow::BeginNext() {
  Incoming& first = incoming_.front();
  return first.is_begun ? absl::OkStatus() : BeginFirst(first);
}

ReceiveWindow::Message ReceiveWindow::PopNext() {
  Incoming first = std::move(incoming_.front());
  incoming_.pop_front();
  if (first.held.size() > 0) {
    std::memcpy(first.message.target.data, first.held.data(),
                first.held.size());
    held_bytes_ -= first.held.size();
  }
  --num_begun_;
  ++taken_;
  has_asked_ = false;
  answer_();
  return first.message;
}

uint32_t ReceiveWindow::TakeUnheard() {
  return taken_ += static_cast<uint32_t>(incoming_.size());
}

void ReceiveWindow::TakeUnheard(uint32_t sequence) {
  if (!IsBefore(sequence, taken_)) taken_ = sequence + 1;
}

void ReceiveWindow::AskIfLacking() {
  if (has_asked_ || incoming_.empty()) return;
  if (incoming_.front().state != State::kLacking) return;
  has_asked_ = true;
  AskAgain();
}

void ReceiveWindow::AskAgain() {
  wants_again_ = true;
  lacking_ = taken_;
  answer_();
}

uint32_t ReceiveWindow::HereBits() const {
  uint32_t bits = 0;
  for (uint32_t i = 0; i < kAckedBits; ++i) {
    if (i + 1 >= incoming_.size()) break;
    const bool is_here = incoming_[i + 1].state == State::kHere;
    bits |= static_cast<uint32_t>(is_here) << i;
  }
  return bits;
}

Prefix ReceiveWindow::Answer() {
  told_ = taken_;
  const bool wants_again = std::exchange(wants_again_, false);
  if (wants_again && lacking_ == taken_) {
    return {Kind::kAgain, taken_, HereBits()};
  }
  return {.kind = Kind::kTaken, .sequence = taken_};
}

}  // namespace telegrad::resend
