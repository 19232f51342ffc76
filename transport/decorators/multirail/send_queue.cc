#include "transport/decorators/multirail/send_queue.h"

#include <algorithm>

#include "base/status_macros.h"

namespace telegrad::multirail {

void SendQueue::Add(ConstBytes header, ConstBytes payload, SendDone done) {
  auto message = std::make_shared<Outgoing>();
  std::copy_n(header.data, header.size, message->header.data() + kPrefixBytes);
  message->header_bytes = kPrefixBytes + header.size;
  message->sequence = next_sequence_++;
  message->payload = payload;
  message->num_parts = NumParts(payload.size);
  message->done = std::move(done);
  queue_.push_back(std::move(message));
}

// A part may wait for a fast connection although a slow one is idle, if it is
// sent sooner so.
bool SendQueue::Give() {
  while (!queue_.empty()) {
    const std::shared_ptr<Outgoing> message = queue_.front();
    if (message->num_given == 0 && !MayBegin(*message)) {
      AskFor(message->sequence);
      return true;
    }
    const size_t bytes = PartBytes(message->payload.size, message->num_given);
    Connection* const soonest =
        connections_.Soonest(bytes, heard_by_peer_.weight > 0);
    if (soonest == nullptr) return true;
    if (!soonest->HasRoom(bytes)) return false;
    GivePart(*soonest, message);
    if (message->num_given == message->num_parts) queue_.pop_front();
  }
  return true;
}

// The receiver holds what comes before its turn.
bool SendQueue::MayBegin(const Outgoing& message) const {
  const uint64_t heard = heard_by_peer_.weight;
  const uint64_t ahead = weight_begun_ - heard;
  return ahead == 0 || ahead + Weight(message.payload.size) <= MaxLead(heard);
}

// Once: the peer tells when it has heard so many, all that were begun.
void SendQueue::AskFor(uint32_t messages) {
  if (has_asked_for_ == messages) return;
  std::array<std::byte, kPrefixBytes> text;
  PackAsk(messages, text.data());
  if (connections_.SendBare(text)) has_asked_for_ = messages;
}

void SendQueue::GivePart(Connection& connection,
                         const std::shared_ptr<Outgoing>& message) {
  const size_t size = message->payload.size, index = message->num_given++;
  const size_t bytes = PartBytes(size, index);
  if (index == 0) weight_begun_ += Weight(size);
  PackPart(
      {.sequence = message->sequence, .payload_bytes = size, .index = index},
      message->header.data());
  const size_t given = bytes + message->header_bytes;
  if (connection.bytes_given == 0) connection.pace.Begin(Clock::now());
  connection.bytes_given += given;
  // The inner transport hears of the end of a connection after its last send.
  const auto finish = [this, &connection, message,
                       given](const absl::Status& status) {
    connection.bytes_given -= given;
    connection.pace.Add(given, Clock::now());
    if (message->status.ok()) message->status = status;
    ++message->num_finished;
    message->FinishIfWhole();
    dispatch_();
  };
  connection.is_usable = due_.Pass(
      inner_, connection.inner, {message->header.data(), message->header_bytes},
      {message->payload.data + index * kPartBytes, bytes}, finish);
}

absl::Status SendQueue::TakeAck(ConstBytes header, size_t payload_bytes) {
  ASSIGN_OR_RETURN(const ReceivedSoFar heard, ParseAck(header, payload_bytes));
  ReceivedSoFar& known = heard_by_peer_;
  const uint32_t more = heard.messages - known.messages;
  constexpr uint32_t kStale = uint32_t{1} << 31;  // passed on its way
  if (more >= kStale) return absl::OkStatus();
  if (more > next_sequence_ - known.messages || heard.weight > weight_begun_ ||
      heard.weight < known.weight) {
    return absl::InvalidArgumentError("more was received than was sent");
  }
  known = heard;
  dispatch_();
  return absl::OkStatus();
}

void SendQueue::Refuse(const absl::Status& why) {
  for (const std::shared_ptr<Outgoing>& message : queue_) {
    message->num_parts = message->num_given;
    if (message->status.ok()) message->status = why;
    if (message->num_finished == message->num_given) {
      due_.Add([message](const absl::Status&) { message->FinishIfWhole(); },
               message->status);
    }
  }
  queue_.clear();
}

}  // namespace telegrad::multirail
