#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <utility>

#include "absl/status/status.h"
#include "transport/decorators/resend/resend_transport.h"
#include "transport/decorators/resend/wire.h"
#include "transport/transport.h"

namespace telegrad::resend {

// What one endpoint sends, until the peer has taken it. An error of a method
// is the end of the endpoint. One thread.
class SendWindow {
 public:
  // `on_empty`: after completions, nothing is left; perhaps more than once.
  SendWindow(TransportContext& inner, EndpointId endpoint,
             const ResendLimits& limits, uint64_t& num_again,
             std::function<void()> on_empty)
      : inner_(inner),
        endpoint_(endpoint),
        limits_(limits),
        num_again_(num_again),
        on_empty_(std::move(on_empty)) {}

  // `body`: of kEnd; of a message its payload's checksum is.
  void Add(Kind kind, ConstBytes header, ConstBytes payload, SendDone done,
           uint32_t body);
  // The peer has taken so many messages, from the first ever.
  absl::Status TakeAcknowledgement(uint32_t messages);
  // And lacks some.
  absl::Status TakeAgain(const Prefix& prefix);
  // Sends again what is due; lowers `next` to when there is something to do.
  absl::Status AdvanceTimer(TimePoint now, TimePoint* next);

  // Nothing is sent any more.
  void Stop() { is_stopped_ = true; }
  // The endpoint is gone: calls each `done`.
  void Refuse(const absl::Status& why);

 private:
  struct Outgoing {
    uint32_t sequence = 0;
    std::array<std::byte, kMaxCarriedBytes> header = {};
    size_t header_bytes = 0;
    ConstBytes payload = {};
    SendDone done = nullptr;
    int num_resends = 0;
    int num_inner = 0;  // copies that the inner transport has
    TimePoint sent_at = {}, left_at = {};  // times of the last copy
  };

  void SendQueued();
  void SendCopy(Outgoing& message);
  absl::Status SendAgain(Outgoing& message);
  void MeasureRoundTrip(const Outgoing& first, const Outgoing& last);
  void Complete();
  Duration Timeout() const;
  uint32_t first_sequence() const {
    return next_sequence_ - static_cast<uint32_t>(outgoing_.size());
  }

  TransportContext& inner_;
  const EndpointId endpoint_;
  const ResendLimits& limits_;
  uint64_t& num_again_;  // counted for all endpoints
  const std::function<void()> on_empty_;
  bool is_stopped_ = false;
  std::deque<Outgoing> outgoing_;  // the first has left first
  uint32_t next_sequence_ = 0;
  uint32_t acknowledged_ = 0;          // messages, from the first ever
  size_t num_sent_ = 0;                // how many of `outgoing_` were sent
  size_t sent_bytes_ = 0;              // payloads of these
  Duration round_trip_ = {};           // 0: not known
  Duration shortest_round_trip_ = {};  // 0: not known
  TimePoint advanced_at_ = {};         // when the last acknowledgement came
  int num_timeouts_ = 0;               // since then
};

}  // namespace telegrad::resend
