#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "transport/endpoint_table.h"
#include "transport/ofi/endpoint.h"
#include "transport/ofi/fabric.h"
#include "transport/ofi/lane_agreement.h"
#include "transport/transport.h"

namespace telegrad::ofi {

// Messages of all endpoints into records, and large payloads into lanes. One
// thread.
class Sender {
 public:
  Sender(Fabric& fabric, Endpoints& endpoints, LaneAgreement& lanes)
      : fabric_(fabric), endpoints_(endpoints), lanes_(lanes) {}

  // Registers a payload on a device, which goes from there by a lane or not at
  // all.
  absl::StatusOr<Registration> Register(const Endpoint& endpoint,
                                        ConstBytes payload);
  void Send(Endpoint& endpoint, ConstBytes header, ConstBytes payload,
            Registration registration, SendDone done);
  // Behind all that was sent.
  void SendGoodbye(Endpoint& endpoint);
  // Before what is not yet in slots.
  void SendUrgent(Endpoint& endpoint, Kind kind, ConstBytes header = {});

  // The peer has greeted, or libfabric takes more.
  void Start(Endpoint& endpoint);
  void PumpAll() {
    if (!turns_.empty()) TakeTurns();
  }
  // What Progress must not sleep for long before: something has yet to be
  // taken, and libfabric does not say when it can.
  bool is_waiting() const { return is_stalled_ || !turns_.empty(); }

  void HandleSent(Slot* slot, int error);
  // The peer has taken a large message.
  void HandleTaken(Endpoint& endpoint);
  // The endpoint is gone.
  void Refuse(Endpoint& endpoint);
  size_t CallDone() { return done_.CallAll(); }

  // Messages that were not copied into slots.
  uint64_t num_large() const { return num_large_; }

 private:
  Outgoing& Enqueue(Endpoint& endpoint, Kind kind, bool is_urgent);
  void TakeTurns();
  bool Pump(Endpoint& endpoint);
  bool PumpOne(Endpoint& endpoint, Slot* slot);
  bool PrepareLarge(Endpoint& endpoint);
  void SendLarge(Endpoint& endpoint, Outgoing& message);
  void FinishPart(Endpoint& endpoint, Outgoing& message);

  Fabric& fabric_;
  Endpoints& endpoints_;
  LaneAgreement& lanes_;
  Turns turns_;              // endpoints that have something to send
  bool is_stalled_ = false;  // libfabric took no more; it does not say when
  uint64_t num_large_ = 0;
  DueCompletions done_;
};

}  // namespace telegrad::ofi
