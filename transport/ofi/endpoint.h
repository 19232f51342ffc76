#pragma once

#include <rdma/fabric.h>

#include <array>
#include <cstdint>
#include <list>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/socket.h"
#include "transport/ofi/wire.h"
#include "transport/transport.h"

namespace telegrad::ofi {

// Sent in records, through slots; gone when all of them have completed.
struct Outgoing {
  Kind kind = Kind::kData;
  std::array<std::byte, kMaxHeaderBytes> header = {};
  size_t header_bytes = 0;
  ConstBytes payload = {};
  SendDone done = nullptr;
  size_t offset = 0;  // of the payload, already in slots
  bool is_begun = false;
  bool is_in_slots = false;  // all of it
  int num_slots = 0;         // that libfabric has
  std::list<Outgoing>::iterator self = {};
};

// The message that is being received; the one OnHeader was called for.
struct Incoming {
  bool is_begun = false;
  std::array<std::byte, kMaxHeaderBytes> header = {};
  size_t header_bytes = 0;
  size_t payload_bytes = 0;
  size_t received = 0;
  Bytes target = {};
};

// kOpen --Close--> kClosing --acknowledged, or grace over--> gone
// kOpen --goodbye--> kPeerClosed --peer disconnects, or grace over--> gone
// any --failure--> kFailed --> gone
enum class State : uint8_t { kOpen, kClosing, kPeerClosed, kFailed };

struct Endpoint {
  EndpointId id = 0;
  uint64_t token = 0;  // that its peer shows
  State state = State::kOpen;
  absl::Status why;           // what OnClosed will say; set when not open
  TimePoint close_by = {};    // when not open
  TimePoint greet_by = {};    // the peer's hello is due
  bool is_accepted = false;   // by our listener
  bool is_announced = false;  // the owner knows it
  bool is_acknowledged = false;

  // The connection: the hellos, then the sign of life.
  UniqueFd socket;
  bool is_connecting = false;
  bool has_ended = false;  // the peer has disconnected
  std::string unsent;      // of our hello
  std::string received;    // of the peer's

  // From the peer's hello.
  bool has_greeted = false;
  uint32_t peer_id = 0;
  uint64_t peer_token = 0;
  std::string peer_address;
  fi_addr_t peer = FI_ADDR_NOTAVAIL;
  bool is_fragile = false;  // Fabric::IsFragile

  std::list<Outgoing> messages;  // whose `done` is due, in order of sending
  std::list<Outgoing>::iterator next = messages.end();  // not yet in slots
  size_t num_slots = 0;                                 // that libfabric has
  bool is_pumping = false;                              // is in pumping_
  uint32_t next_to_send = 0;

  uint32_t next_to_hear = 0;
  std::map<uint32_t, std::vector<std::byte>> early;
  Incoming incoming;
};

}  // namespace telegrad::ofi
