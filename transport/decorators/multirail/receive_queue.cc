#include "transport/decorators/multirail/receive_queue.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "transport/send_checks.h"

namespace telegrad::multirail {
namespace {

constexpr size_t kSmallHeldBytes = kPartBytes / 4;
constexpr size_t kMaxSpare = 64;

}  // namespace

Buffer PartBuffers::Get(size_t bytes) {
  if (bytes <= kSmallHeldBytes) return Buffer(bytes);
  if (spare_.empty()) return Buffer(kPartBytes);
  Buffer buffer = std::move(spare_.back());
  spare_.pop_back();
  return buffer;
}

void PartBuffers::Put(Buffer buffer) {
  if (buffer.size() == kPartBytes && spare_.size() < kMaxSpare) {
    spare_.push_back(std::move(buffer));
  }
}

absl::StatusOr<std::optional<Bytes>> ReceiveQueue::Begin(ConstBytes header,
                                                         size_t part_bytes) {
  ASSIGN_OR_RETURN(const Part part, ParsePart(header, part_bytes));
  ASSIGN_OR_RETURN(Incoming * message, Find(part, header));
  if (message->begun.test(part.index)) {
    return absl::InvalidArgumentError("a part comes twice");
  }
  message->begun.set(part.index);
  // In the order of sending, as far as their headers are known.
  while (num_begun_ < incoming_.size() && incoming_[num_begun_] != nullptr &&
         !is_stopped_) {
    RETURN_IF_ERROR(BeginMessage(*incoming_[num_begun_]));
  }
  if (is_stopped_) return std::nullopt;  // the handler's doing
  if (part.sequence - heard_.messages >= num_begun_) {
    return Hold(*message, part.index, part_bytes);
  }
  return Bytes(message->target.data + part.index * kPartBytes, part_bytes);
}

// The message that the part belongs to, whose header is known now.
absl::StatusOr<ReceiveQueue::Incoming*> ReceiveQueue::Find(const Part& part,
                                                           ConstBytes header) {
  const uint32_t place = part.sequence - heard_.messages;
  if (place >= kMaxLeadMessages) {
    return absl::InvalidArgumentError(absl::StrCat(
        "message ", part.sequence, " comes when ", heard_.messages, " is due"));
  }
  if (incoming_.size() <= place) incoming_.resize(place + 1);
  std::unique_ptr<Incoming>& found = incoming_[place];
  const ConstBytes rest(header.data + kPrefixBytes, header.size - kPrefixBytes);
  if (found == nullptr) {
    found = std::make_unique<Incoming>();
    found->header_bytes = rest.size;
    std::copy_n(rest.data, rest.size, found->header.data());
    found->payload_bytes = part.payload_bytes;
  }
  if (found->payload_bytes != part.payload_bytes ||
      !std::ranges::equal(rest.span(), found->header_view().span())) {
    return absl::InvalidArgumentError(
        absl::StrCat("parts of two messages ", part.sequence));
  }
  return found.get();
}

absl::Status ReceiveQueue::BeginMessage(Incoming& message) {
  ASSIGN_OR_RETURN(message.target,
                   handler_.OnHeader(endpoint_, message.header_view(),
                                     message.payload_bytes));
  RETURN_IF_ERROR(CheckTarget(message.target, message.payload_bytes));
  ++num_begun_;
  for (auto held = message.held.begin(); held != message.held.end();) {
    held =
        held->second.has_arrived ? PlaceHeld(message, held) : std::next(held);
  }
  return absl::OkStatus();
}

absl::StatusOr<Bytes> ReceiveQueue::Hold(Incoming& message, size_t index,
                                         size_t part_bytes) {
  if (heard_.weight == 0) {
    return absl::InvalidArgumentError(
        "a message out of its turn before the first was received");
  }
  Held held = {.buffer = buffers_.Get(part_bytes), .size = part_bytes};
  // Buffers are at most four times as large as what is in them.
  const uint64_t weight = Weight(held.buffer.size());
  if (weight_held_ + weight > 4 * MaxLead(heard_.weight)) {
    return absl::ResourceExhaustedError(absl::StrCat(
        weight_held_, " bytes wait for a message on another connection"));
  }
  weight_held_ += weight;
  const Bytes place(held.buffer.data(), part_bytes);
  message.held[index] = std::move(held);
  return place;
}

// To where it belongs; returns the next one.
ReceiveQueue::HeldParts::iterator ReceiveQueue::PlaceHeld(
    Incoming& message, HeldParts::iterator held) {
  Held& part = held->second;
  if (part.size > 0) {
    std::memcpy(message.target.data + held->first * kPartBytes,
                part.buffer.data(), part.size);
  }
  weight_held_ -= Weight(part.buffer.size());
  buffers_.Put(std::move(part.buffer));
  ++message.num_arrived;
  return message.held.erase(held);
}

void ReceiveQueue::HasCome(const Part& part) {
  const uint32_t place = part.sequence - heard_.messages;
  if (is_stopped_ || place >= incoming_.size()) return;
  Incoming& message = *incoming_[place];  // since its part began
  const auto held = message.held.find(part.index);
  if (held == message.held.end()) {
    ++message.num_arrived;
    return;
  }
  held->second.has_arrived = true;
  if (place < num_begun_) PlaceHeld(message, held);
}

std::optional<ReceiveQueue::Message> ReceiveQueue::TakeNext() {
  if (num_begun_ == 0 || is_stopped_) return std::nullopt;
  const Incoming& first = *incoming_.front();
  if (first.num_arrived < NumParts(first.payload_bytes)) return std::nullopt;
  const Message message = first;
  incoming_.pop_front();
  --num_begun_;
  ++heard_.messages;
  heard_.weight += Weight(message.payload_bytes);
  return message;
}

}  // namespace telegrad::multirail
