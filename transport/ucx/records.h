#pragma once

#include <ucp/api/ucp.h>

#include <array>
#include <cstdint>
#include <deque>
#include <map>

#include "absl/status/status.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "transport/transport.h"

namespace telegrad::ucx {

class UcxContext;

// Our part of the header of each active message, before the user's header:
//   prefix = sequence:u32 kind:u8 version:u8 zero:u16    (little endian)
// kData and kGoodbye are counted by `sequence`, from 0 in each direction;
// kGoodbyeAck is not. kGoodbye: nothing follows; the peer answers kGoodbyeAck
// after all before it were heard, and then whoever said goodbye disconnects.
constexpr unsigned kMessageId = 0;  // of UCX
constexpr size_t kPrefixBytes = 8;
constexpr uint8_t kPrefixVersion = 1;
enum class Kind : uint8_t { kData = 0, kGoodbye = 1, kGoodbyeAck = 2 };

// UCX may let small messages pass large ones; a peer whose messages are
// further apart than this is broken.
constexpr uint32_t kReorderWindow = 1 << 12;

struct Outgoing {
  UcxContext* context = nullptr;
  EndpointId endpoint = 0;
  std::array<std::byte, kPrefixBytes + kMaxHeaderBytes> header;
  SendDone done;  // empty for kGoodbye and kGoodbyeAck
  ucs_status_t result = UCS_OK;
};

struct Incoming {
  UcxContext* context = nullptr;
  EndpointId endpoint = 0;
  Kind kind = Kind::kData;
  uint32_t sequence = 0;
  std::array<std::byte, kMaxHeaderBytes> header;
  size_t header_bytes = 0;
  size_t payload_bytes = 0;
  void* descriptor = nullptr;  // what UCX keeps for us; null: nothing
  bool is_rendezvous = false;
  Bytes target;  // what OnHeader gave
  bool has_arrived = false;
  ucs_status_t result = UCS_OK;
};

// kOpen --Close--> kClosing --acknowledged, or grace over--> cut
// kOpen --kGoodbye--> kPeerClosed --peer disconnects, or grace over--> cut
// any --failure--> kFailed --> cut; and when UCX has let go of all: OnClosed.
enum class State : uint8_t { kOpen, kClosing, kPeerClosed, kFailed };

struct Endpoint {
  UcxContext* context = nullptr;
  EndpointId id = 0;
  ucp_ep_h handle = nullptr;
  State state = State::kOpen;
  absl::Status why;  // what OnClosed will say; set when not open
  TimePoint close_by;
  bool is_acknowledged = false;
  bool is_cut = false;                       // ucp_ep_close_nbx was called
  ucs_status_ptr_t close_request = nullptr;  // null: finished

  uint32_t next_to_send = 0;
  uint32_t next_to_announce = 0;
  std::map<uint32_t, Incoming*> early;  // arrived before its predecessor
  std::deque<Incoming*> announced;      // not yet heard, in order
  size_t num_sends = 0;                 // whose `done` is due
  size_t num_receives = 0;              // that UCX is working on
};

}  // namespace telegrad::ucx
