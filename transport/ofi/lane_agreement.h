#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "transport/ofi/endpoint.h"
#include "transport/ofi/fabric.h"

namespace telegrad::ofi {

// How two sides agree that large payloads are not copied through slots: over
// lanes or, in shared memory, read by the receiver. What comes back from Offer
// and TakeOffer is the header of the record to be sent, if any. One thread.
class LaneAgreement {
 public:
  LaneAgreement(Fabric& fabric, Endpoints& endpoints)
      : fabric_(fabric), endpoints_(endpoints) {}

  std::optional<std::string> Offer(Endpoint& endpoint);
  std::optional<std::string> TakeOffer(Endpoint& endpoint, ConstBytes header);
  void TakeAccept(Endpoint& endpoint, ConstBytes header);
  // To send to the peer.
  bool IsAgreed(const Endpoint& endpoint) const {
    return endpoint.is_accepted_by_peer &&
           (fabric_.is_shm() || endpoint.send_lane != nullptr);
  }
  void Close(Endpoint& endpoint);

  size_t num_lanes() const { return num_lanes_; }

 private:
  bool Open(std::unique_ptr<Lane>* lane);

  Fabric& fabric_;
  Endpoints& endpoints_;
  size_t num_lanes_ = 0;
};

}  // namespace telegrad::ofi
