#include "transport/decorators/resend/send_window.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/crc32c.h"
#include "base/status_macros.h"

namespace telegrad::resend {
namespace {

// Copies of one message with the inner transport at a time, whatever a peer
// asks for.
constexpr int kMaxCopies = 2;

}  // namespace

void SendWindow::Add(Kind kind, ConstBytes header, ConstBytes payload,
                     SendDone done, uint32_t body) {
  Outgoing& message = outgoing_.emplace_back();
  message.sequence = next_sequence_++;
  message.payload = payload;
  message.done = std::move(done);
  if (kind == Kind::kMessage) body = Crc32c(payload.data, payload.size);
  PackPrefix({.kind = kind, .sequence = message.sequence, .body = body}, header,
             message.header.data());
  std::copy_n(header.data, header.size, message.header.data() + kPrefixBytes);
  message.header_bytes = kPrefixBytes + header.size;
  SendQueued();
}

void SendWindow::SendQueued() {
  while (!is_stopped_ && num_sent_ < outgoing_.size()) {
    Outgoing& message = outgoing_[num_sent_];
    const bool has_room =
        num_sent_ < limits_.window_messages &&
        sent_bytes_ + message.payload.size <= limits_.window_bytes;
    if (num_sent_ > 0 && !has_room) return;
    ++num_sent_;
    sent_bytes_ += message.payload.size;
    SendCopy(message);
  }
}

// A refusal has its end to be heard of.
void SendWindow::SendCopy(Outgoing& message) {
  message.sent_at = Clock::now();
  const absl::Status sent =
      inner_.Send(endpoint_, {message.header.data(), message.header_bytes},
                  message.payload, [this, &message](const absl::Status&) {
                    --message.num_inner;
                    message.left_at = Clock::now();
                    Complete();
                  });
  if (sent.ok()) ++message.num_inner;
}

absl::Status SendWindow::SendAgain(Outgoing& message) {
  if (message.num_resends == limits_.max_resends) {
    return absl::UnavailableError(
        absl::StrCat("message ", message.sequence, " was sent again ",
                     message.num_resends, " times in vain"));
  }
  ++message.num_resends;
  ++num_again_;
  SendCopy(message);
  return absl::OkStatus();
}

absl::Status SendWindow::TakeAcknowledgement(uint32_t messages) {
  if (!IsBefore(acknowledged_, messages))
    return absl::OkStatus();  // an old one
  const uint32_t first = first_sequence();
  if (messages - first > num_sent_) {
    return absl::CancelledError(absl::StrCat(
        "message ", messages - 1, " was acknowledged and never sent"));
  }
  MeasureRoundTrip(outgoing_[acknowledged_ - first],
                   outgoing_[messages - first - 1]);
  acknowledged_ = messages;
  advanced_at_ = Clock::now();
  num_timeouts_ = 0;
  Complete();
  return absl::OkStatus();
}

// By the last of those that an answer is for. Of what was sent twice it is not
// known which copy was taken, and others have waited for it.
void SendWindow::MeasureRoundTrip(const Outgoing& first, const Outgoing& last) {
  if (first.num_resends > 0 || last.num_resends > 0 || last.num_inner > 0) {
    return;
  }
  const Duration took = Clock::now() - last.left_at;
  Duration& mean = round_trip_;
  mean = mean == Duration::zero() ? took : (7 * mean + took) / 8;
  Duration& shortest = shortest_round_trip_;
  shortest = shortest == Duration::zero() ? took : std::min(shortest, took);
}

// Calls `done` of what the peer has taken and the inner transport has returned.
void SendWindow::Complete() {
  while (!outgoing_.empty()) {
    Outgoing& first = outgoing_.front();
    if (!IsBefore(first.sequence, acknowledged_) || first.num_inner > 0) {
      break;
    }
    const SendDone done = std::move(first.done);
    sent_bytes_ -= first.payload.size;
    --num_sent_;
    outgoing_.pop_front();
    if (done) done(absl::OkStatus());
  }
  SendQueued();
  if (outgoing_.empty()) on_empty_();
}

// Asked for is the first that is lacking; others before one that is here are
// lacking, too. A question takes a round trip, so none comes sooner.
absl::Status SendWindow::TakeAgain(const Prefix& prefix) {
  RETURN_IF_ERROR(TakeAcknowledgement(prefix.sequence));
  if (prefix.sequence != acknowledged_ || is_stopped_) return absl::OkStatus();
  const TimePoint now = Clock::now();
  uint32_t num_asked = 1;
  for (uint32_t i = 0; i < kAckedBits; ++i) {
    if (IsHere(prefix.body, i)) num_asked = i + 1;
  }
  for (uint32_t i = 0; i < num_asked; ++i) {
    if (i > 0 && IsHere(prefix.body, i - 1)) continue;
    const uint32_t place = prefix.sequence + i - first_sequence();
    if (place >= num_sent_) break;
    Outgoing& message = outgoing_[place];
    const bool is_asked_before =
        message.num_resends > 0 && now - message.sent_at < shortest_round_trip_;
    if (is_asked_before || message.num_inner >= kMaxCopies) continue;
    RETURN_IF_ERROR(SendAgain(message));
  }
  return absl::OkStatus();
}

Duration SendWindow::Timeout() const {
  const Duration first = std::max(limits_.min_timeout, 4 * round_trip_);
  constexpr int kMaxDoublings = 16;
  const int doublings = std::min(num_timeouts_, kMaxDoublings);
  return std::min(first * (1 << doublings), limits_.max_timeout);
}

absl::Status SendWindow::AdvanceTimer(TimePoint now, TimePoint* next) {
  const uint32_t num_queued = next_sequence_ - acknowledged_;
  if (num_queued == 0) return absl::OkStatus();
  Outgoing& oldest = outgoing_[outgoing_.size() - num_queued];
  // What has not left waits for nobody but the inner transport.
  if (oldest.num_inner > 0 || oldest.left_at == TimePoint()) {
    return absl::OkStatus();
  }
  const TimePoint since = std::max(oldest.left_at, advanced_at_);
  if (since + Timeout() <= now) {
    ++num_timeouts_;
    return SendAgain(oldest);
  }
  *next = std::min(*next, since + Timeout());
  return absl::OkStatus();
}

void SendWindow::Refuse(const absl::Status& why) {
  for (const Outgoing& message : outgoing_) {
    if (message.done) message.done(why);
  }
}

}  // namespace telegrad::resend
