#pragma once

#include <rdma/fabric.h>
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/socket.h"
#include "transport/endpoint_table.h"
#include "transport/ofi/lane.h"
#include "transport/ofi/wire.h"
#include "transport/proof.h"
#include "transport/transport.h"

namespace telegrad::ofi {

inline bool IsOnDevice(ConstBytes payload) {
  return payload.size > 0 && payload.device.kind != DeviceKind::kCpu;
}

// Sent in records, through slots, or by a record and another way; gone when all
// of these have completed.
struct Outgoing {
  Kind kind = Kind::kData;
  std::array<std::byte, kMaxCarriedBytes> header = {};
  size_t header_bytes = 0;
  ConstBytes payload = {};
  Registration registration = {};  // for a payload on a device
  SendDone done = nullptr;
  size_t offset = 0;  // bytes of the payload that are in slots already
  bool is_begun = false;
  bool is_in_slots = false;  // all of it
  bool is_large = false;     // the payload goes another way than the record
  int num_pending = 0;       // slots that libfabric has, and kTaken if due
  std::list<Outgoing>::iterator self = {};
};

// A message that OnHeader was called for, or a goodbye; heard in their order.
struct Incoming {
  Kind kind = Kind::kData;
  bool is_whole = false;
  bool is_in_lane = false;  // libfabric has `target`
  std::array<std::byte, kMaxCarriedBytes> header = {};
  size_t header_bytes = 0;
  size_t payload_bytes = 0;
  size_t received = 0;
  Bytes target = {};
  Registration registration = {};  // for a target on a device
};

// kOpen --Close--> kClosing --acknowledged, or grace over--> gone
// kOpen --goodbye--> kPeerClosed --peer disconnects, or grace over--> gone
// any --failure--> kFailed --> gone
enum class State : uint8_t { kOpen, kClosing, kPeerClosed, kFailed };

struct Endpoint {
  EndpointId id = 0;
  uint64_t token = 0;  // the token that its peer shows
  State state = State::kOpen;
  absl::Status why;           // what OnClosed will say; set when not open
  TimePoint close_by = {};    // when not open
  TimePoint greet_by = {};    // the peer's proof and hello are due
  bool is_accepted = false;   // by our listener
  bool is_announced = false;  // the owner knows it
  bool is_acknowledged = false;

  // The connection: proofs and hellos, then the sign of life.
  UniqueFd socket;
  Proof proof;
  bool is_connecting = false;
  bool has_ended = false;  // the peer has disconnected
  std::string unsent;      // the rest of our proof and hello
  std::string received;    // the peer's hello so far

  // From the peer's hello.
  bool has_greeted = false;
  uint32_t peer_id = 0;
  uint64_t peer_token = 0;
  std::string peer_address;
  int peer_process = 0;  // in shared memory
  fi_addr_t peer = FI_ADDR_NOTAVAIL;
  bool is_fragile = false;  // Fabric::IsFragile

  // Messages whose `done` is due, in order of sending.
  std::list<Outgoing> messages;
  std::list<Outgoing>::iterator next = messages.end();  // not yet in slots
  size_t num_slots = 0;   // slots that libfabric has
  bool has_turn = false;  // to send
  uint32_t next_to_send = 0;

  uint32_t next_to_hear = 0;
  std::map<uint32_t, std::vector<std::byte>> early;
  std::deque<Incoming> incoming;

  // Large payloads: lanes, or the receiver reads from the sender's memory.
  std::string peer_lane_address;
  fi_addr_t peer_lane = FI_ADDR_NOTAVAIL;
  bool has_offered = false;
  bool has_accepted = false;
  bool is_accepted_by_peer = false;
  uint64_t next_tag_to_send = 0;  // on the lane
  uint64_t next_tag_to_hear = 0;
  size_t num_untaken = 0;         // large messages that we have sent
  size_t num_large_incoming = 0;  // and not yet whole
  // Large messages in shared memory that the peer has not taken.
  std::deque<Outgoing*> exposed;
  Buffer scratch;  // for what comes after Close
  // Last: ended before the memory. One for each direction, so that never
  // both sides connect at once.
  std::unique_ptr<Lane> send_lane, receive_lane;

  bool HasPeerLeft() const {
    char byte;
    return recv(socket.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
  }
};

class Endpoints : public EndpointTable<Endpoint> {
 public:
  void Fail(Endpoint& endpoint, absl::Status why) {
    BeginClosing(endpoint, State::kFailed, std::move(why));
  }
  void FailProtocol(Endpoint& endpoint, absl::string_view what) {
    Fail(endpoint, absl::UnavailableError(
                       absl::StrCat("the peer breaks the protocol: ", what)));
  }
};

}  // namespace telegrad::ofi
