#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/decorators/resend/resend_transport.h"
#include "transport/decorators/resend/wire.h"
#include "transport/transport.h"

namespace telegrad::resend {

struct ReceiveCounts {
  uint64_t duplicates = 0, reordered = 0, harmed = 0;
};

// What comes to one endpoint, in any order, and is heard in that of sending.
// For each message Begin, HasCome; then BeginNext and PopNext. One thread.
class ReceiveWindow {
 public:
  struct Message {
    Kind kind = Kind::kMessage;
    uint32_t body = 0;
    std::array<std::byte, kMaxCarriedBytes> header = {};  // the user's
    size_t header_bytes = 0;
    size_t payload_bytes = 0;
    Bytes target = {};

    ConstBytes header_view() const { return {header.data(), header_bytes}; }
  };

  // `answer`: the peer is to be told what was taken.
  ReceiveWindow(EndpointId endpoint, TransportHandler& handler,
                const ResendLimits& limits, ReceiveCounts& counts,
                std::function<void()> answer)
      : endpoint_(endpoint),
        handler_(handler),
        limits_(limits),
        counts_(counts),
        answer_(std::move(answer)) {}

  // A message begins to come. Where its payload goes: to the handler's memory
  // if all before it goes there, too, else into our own; null: nobody wants it.
  absl::StatusOr<std::optional<Bytes>> Begin(const Prefix& prefix,
                                             ConstBytes header,
                                             size_t payload_bytes);
  // One of which the place was given. False: it was harmed, and is to come
  // again, to the same place if the handler has given one.
  bool HasCome(const Prefix& prefix, Bytes payload);
  // The next one was lost.
  void AskAgain();
  // Asks once, if others came and the next one did not, as it may come yet.
  void AskIfLacking();

  bool is_next_here() const {
    return !incoming_.empty() && incoming_.front().state == State::kHere;
  }
  // The handler hears of it, if it has not.
  absl::Status BeginNext();
  // It is taken, and where the handler wants it.
  Message PopNext();

  // Nobody hears what has come, or message `sequence` and all before it: the
  // peer need not wait.
  uint32_t TakeUnheard();
  void TakeUnheard(uint32_t sequence);

  uint32_t num_untold() const { return taken_ - told_; }
  // What the peer is told.
  Prefix Answer();

 private:
  enum class State : uint8_t { kLacking, kArriving, kHere };
  struct Incoming {
    Message message;
    State state = State::kLacking;
    bool is_begun = false;  // the handler has given `target`
    Buffer held = {};       // until it is begun
  };

  static absl::Status Describe(Incoming& incoming, const Prefix& prefix,
                               ConstBytes header, size_t payload_bytes);
  absl::StatusOr<std::optional<Bytes>> Place(size_t place,
                                             size_t payload_bytes);
  absl::Status BeginFirst(Incoming& incoming);
  uint32_t HereBits() const;

  const EndpointId endpoint_;
  TransportHandler& handler_;
  const ResendLimits& limits_;
  ReceiveCounts& counts_;
  const std::function<void()> answer_;
  std::deque<Incoming> incoming_;  // from message `taken_` on
  uint32_t taken_ = 0;
  uint32_t told_ = 0;     // how many taken the peer was told of
  size_t num_begun_ = 0;  // how many of `incoming_` have begun, the first ones
  size_t num_lacking_ = 0;    // how many begun ones are lacking: harmed
  size_t held_bytes_ = 0;     // bytes of all `held`
  bool has_asked_ = false;    // for message `taken_`, as later ones came
  bool wants_again_ = false;  // to ask for message `lacking_`
  uint32_t lacking_ = 0;
};

}  // namespace telegrad::resend
