#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "transport/ofi/endpoint.h"
#include "transport/ofi/fabric.h"
#include "transport/ofi/lane_agreement.h"
#include "transport/ofi/sender.h"
#include "transport/transport.h"

namespace telegrad::ofi {

// Records of all endpoints into messages. One thread.
class Receiver {
 public:
  Receiver(Fabric& fabric, Endpoints& endpoints, LaneAgreement& lanes,
           Sender& sender, TransportHandler& handler, size_t max_header_bytes)
      : fabric_(fabric),
        endpoints_(endpoints),
        lanes_(lanes),
        sender_(sender),
        handler_(handler),
        max_header_bytes_(max_header_bytes) {}

  void HandleReceived(ConstBytes bytes);
  void HandleLaneReceived(const Completion& completion);
  // TransportContext::TakesNow.
  bool TakesNow(Bytes target);

  // Calls of the handler since it was asked last.
  size_t TakeEvents() { return std::exchange(num_events_, 0); }
  // Records that belong to no endpoint.
  uint64_t num_strays() const { return num_strays_; }

 private:
  void TakeInOrder(Endpoint& endpoint, const Record& record, ConstBytes bytes);
  void Take(Endpoint& endpoint, const Record& record);
  static bool IsInMessage(const Endpoint& endpoint);
  Incoming* Begin(Endpoint& endpoint, const Record& record);
  void TakeData(Endpoint& endpoint, const Record& record);
  void TakeLarge(Endpoint& endpoint, const Record& record);
  void ReadFromPeer(Endpoint& endpoint, Incoming* message, ConstBytes place);
  void ReceiveOnLane(Endpoint& endpoint, Incoming* message, size_t num_bytes);
  void Deliver(Endpoint& endpoint);
  void ReceiveGoodbye(Endpoint& endpoint);

  Fabric& fabric_;
  Endpoints& endpoints_;
  LaneAgreement& lanes_;
  Sender& sender_;
  TransportHandler& handler_;
  const size_t max_header_bytes_;
  bool is_in_large_header_ = false;  // OnHeader runs, the payload has a lane
  std::optional<Registration> asked_for_;  // what TakesNow has registered
  size_t num_events_ = 0;
  uint64_t num_strays_ = 0;
};

}  // namespace telegrad::ofi
