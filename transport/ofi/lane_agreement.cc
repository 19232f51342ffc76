#include "transport/ofi/lane_agreement.h"

#include <utility>

#include "base/endian.h"
#include "base/log.h"
#include "base/process_memory.h"

namespace telegrad::ofi {

std::optional<std::string> LaneAgreement::Offer(Endpoint& endpoint) {
  endpoint.has_offered = true;
  if (fabric_.is_shm()) {
    const auto address = reinterpret_cast<uint64_t>(&endpoint.token);
    return std::string(reinterpret_cast<const char*>(&address),
                       sizeof(address));
  }
  if (!fabric_.has_lanes()) return std::nullopt;
  return "";
}

std::optional<std::string> LaneAgreement::TakeOffer(Endpoint& endpoint,
                                                    ConstBytes header) {
  if (endpoint.has_accepted) {
    endpoints_.FailProtocol(endpoint, "a second offer");
    return std::nullopt;
  }
  if (fabric_.is_shm()) {
    if (header.size != kPlaceBytes) {
      endpoints_.FailProtocol(endpoint, "offer");
      return std::nullopt;
    }
    uint64_t token = 0;
    if (!ReadProcess(endpoint.peer_process, {&token, sizeof(token)},
                     LoadLittleEndian<uint64_t>(header.data)) ||
        token != endpoint.peer_token) {
      return std::nullopt;  // not permitted here; the peer goes on with records
    }
    endpoint.has_accepted = true;
    return "";
  }
  if (!Open(&endpoint.receive_lane)) return std::nullopt;
  endpoint.has_accepted = true;
  return endpoint.receive_lane->address();
}

void LaneAgreement::TakeAccept(Endpoint& endpoint, ConstBytes header) {
  if (!endpoint.has_offered || endpoint.is_accepted_by_peer) {
    return endpoints_.FailProtocol(endpoint, "an answer to no offer");
  }
  endpoint.is_accepted_by_peer = true;
  if (fabric_.is_shm() || !Open(&endpoint.send_lane)) return;
  std::string address(reinterpret_cast<const char*>(header.data), header.size);
  const absl::StatusOr<fi_addr_t> added = fabric_.AddPeer(address);
  if (!added.ok()) {
    return endpoints_.FailProtocol(endpoint, added.status().message());
  }
  endpoint.peer_lane = *added;
  endpoint.peer_lane_address = std::move(address);
}

bool LaneAgreement::Open(std::unique_ptr<Lane>* lane) {
  if (!fabric_.has_lanes()) return false;
  auto opened = fabric_.OpenLane();
  if (!opened.ok() || (*opened)->address().size() > kMaxHeaderBytes) {
    LogWarning("transport ofi: large messages are copied, no lane: ",
               opened.status().message());
    return false;
  }
  *lane = *std::move(opened);
  ++num_lanes_;
  return true;
}

void LaneAgreement::Close(Endpoint& endpoint) {
  for (std::unique_ptr<Lane>* lane :
       {&endpoint.send_lane, &endpoint.receive_lane}) {
    if (*lane != nullptr) --num_lanes_;
    lane->reset();
  }
  if (endpoint.peer_lane != FI_ADDR_NOTAVAIL) {
    fabric_.RemovePeer(endpoint.peer_lane_address);
  }
}

}  // namespace telegrad::ofi
