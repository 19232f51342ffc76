#pragma once

#include <array>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "transport/decorators/resend/resend_transport.h"
#include "transport/decorators/resend/wire.h"
#include "transport/forwarding.h"

namespace telegrad::resend {

class ResendContext : public ForwardingContext {
 public:
  static absl::StatusOr<std::unique_ptr<TransportContext>> Make(
      const TransportFactory& make_inner, const TransportOptions& options,
      TransportHandler* handler, const ResendLimits& limits);
  ~ResendContext() override { EndInner(); }

  TransportInfo info() const override;
  absl::StatusOr<EndpointId> Connect(absl::string_view address) override;
  absl::Status Send(EndpointId to, ConstBytes header, ConstBytes payload,
                    SendDone done) override;
  void Close(EndpointId endpoint) override;
  bool Progress(TimePoint deadline) override;

 private:
  struct Endpoint;
  struct Outgoing {
    Endpoint* endpoint = nullptr;
    Kind kind = Kind::kMessage;
    uint32_t sequence = 0;
    std::array<std::byte, kMaxCarriedBytes> header = {};
    size_t header_bytes = 0;
    ConstBytes payload = {};
    SendDone done = nullptr;
    int num_resends = 0;
    int num_inner = 0;  // copies that the inner transport has
    TimePoint sent_at = {}, left_at = {};  // of the last copy
  };
  enum class State : uint8_t { kLacking, kArriving, kHere };
  struct Incoming {
    State state = State::kLacking;
    bool is_begun = false;  // the handler has given `target`
    Kind kind = Kind::kMessage;
    uint32_t body = 0;
    std::array<std::byte, kMaxCarriedBytes> header = {};  // the user's
    size_t header_bytes = 0;
    size_t payload_bytes = 0;
    Bytes target = {};
    Buffer held = {};  // until it is begun
  };
  // A message of the inner transport that has begun.
  struct Arriving {
    Prefix prefix = {};
    bool is_wanted = false;  // else it is read and forgotten
  };
  struct Endpoint {
    EndpointId id = 0;
    absl::Status why = {};    // not OK: neither sends nor hears any more
    bool is_closed = false;   // the inner one was told
    TimePoint close_by = {};  // without acknowledgements

    std::deque<Outgoing> outgoing = {};  // the first has left first
    uint32_t next_sequence = 0;
    uint32_t acknowledged = 0;          // messages, from the first ever
    size_t num_sent = 0;                // of `outgoing`
    size_t sent_bytes = 0;              // payloads of these
    Duration round_trip = {};           // 0: not known
    Duration shortest_round_trip = {};  // 0: not known
    TimePoint advanced_at = {};         // when the last acknowledgement came
    int num_timeouts = 0;               // since then

    std::deque<Arriving> arriving = {};
    std::deque<Incoming> incoming = {};  // from message `taken` on
    uint32_t taken = 0;
    uint32_t told = 0;         // how many taken the peer was told of
    size_t num_begun = 0;      // of `incoming`, the first ones
    size_t num_lacking = 0;    // of these: harmed ones
    size_t held_bytes = 0;     // of all `held`
    int num_harmed = 0;        // headers, since the last whole one
    bool has_asked = false;    // for message `taken`, as later ones came
    bool wants_again = false;  // to ask for message `lacking`
    uint32_t lacking = 0;
    bool is_due = false;  // in due_
  };

  ResendContext(const TransportOptions& options, TransportHandler* handler,
                const ResendLimits& limits);

  void OnAccept(EndpointId endpoint) override;
  absl::StatusOr<Bytes> OnHeader(EndpointId from, ConstBytes header,
                                 size_t payload_bytes) override;
  void OnMessage(EndpointId from, ConstBytes header, Bytes payload) override;
  void OnClosed(EndpointId endpoint, const absl::Status& why) override;
  bool HandleEvents(TimePoint* next) override;

  Endpoint* Find(EndpointId id);
  void Add(EndpointId id);
  void Cut(Endpoint& endpoint);
  void Fail(Endpoint& endpoint, const absl::Status& why);

  // sending.cc
  void Enqueue(Endpoint& endpoint, Kind kind, ConstBytes header,
               ConstBytes payload, SendDone done, uint32_t body);
  void SendQueued(Endpoint& endpoint);
  void SendCopy(Outgoing& message);
  void SendAgain(Outgoing& message);
  void TakeAcknowledgement(Endpoint& endpoint, uint32_t messages);
  void TakeAgain(Endpoint& endpoint, const Prefix& prefix);
  static void MeasureRoundTrip(Endpoint& endpoint, const Outgoing& first,
                               const Outgoing& last);
  void Complete(Endpoint& endpoint);
  Duration Timeout(const Endpoint& endpoint) const;
  // When there is something to do next.
  TimePoint AdvanceTimer(Endpoint& endpoint, TimePoint now);

  // receiving.cc
  static absl::Status Refuse(Endpoint& endpoint, const absl::Status& why);
  Bytes Forget(Endpoint& endpoint, const Prefix& prefix, size_t payload_bytes);
  absl::StatusOr<Bytes> TakeHarmed(Endpoint& endpoint, const absl::Status& why,
                                   size_t payload_bytes);
  absl::StatusOr<Bytes> BeginArriving(Endpoint& endpoint, const Prefix& prefix,
                                      ConstBytes header, size_t payload_bytes);
  static absl::Status Describe(Incoming& message, const Prefix& prefix,
                               ConstBytes header, size_t payload_bytes);
  absl::StatusOr<Bytes> PlaceFor(Endpoint& endpoint, size_t place,
                                 size_t payload_bytes);
  absl::Status Begin(Endpoint& endpoint, Incoming& message);
  void EndArriving(Endpoint& endpoint, const Prefix& prefix, Bytes payload);
  void Lose(Endpoint& endpoint, Incoming& message);
  void Deliver(Endpoint& endpoint);
  void DeliverFirst(Endpoint& endpoint);
  void TakeUnheard(Endpoint& endpoint, const Prefix& prefix);
  void AskIfLacking(Endpoint& endpoint);
  void AskAgain(Endpoint& endpoint);
  void Answer(Endpoint& endpoint);
  void SendAnswer(Endpoint& endpoint);
  static uint32_t HereBits(const Endpoint& endpoint);

  const ResendLimits limits_;
  const size_t max_header_bytes_;
  std::unordered_map<EndpointId, Endpoint> endpoints_;
  std::vector<EndpointId> due_;  // who are to be told what was taken
  Buffer forgotten_;             // for all that nobody will look at
  uint64_t num_again_ = 0, num_duplicates_ = 0, num_reordered_ = 0;
  uint64_t num_harmed_ = 0;
};

}  // namespace telegrad::resend
