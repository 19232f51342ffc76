#pragma once

#include <ucp/api/ucp.h>

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "transport/proof.h"
#include "transport/transport.h"
#include "transport/ucx/lane.h"

namespace telegrad::ucx {

class Endpoints;
class Receiver;
class Sender;

// Our part of the header of each active message, before the user's header:
//   prefix = sequence:u32 kind:u8 version:u8 zero:u16    (little endian)
// kData and kGoodbye are counted by `sequence`, from 0 in each direction; the
// others are not. kGoodbye: nothing follows; the peer answers kGoodbyeAck
// after all before it were heard, and then whoever said goodbye disconnects.
// Only kData may come by shared memory. Before it, both sides prove that they
// hold the key, whoever has connected first, and agree:
//   kProof = a message of transport/proof.h; none without a key
//   kHello = wish:u8 host identity   wish 'n' no shared memory, 'm' may, 'r'
//            requires; the first message after the proof. On different
//            hosts, or where one side says 'n', TCP or RDMA it is; else
//   kLane = UCX worker address       empty: no lane could be made
//   kReady = is_ready:u8             '1' if the peer's lane could be opened
// and kData goes by shared memory if both are ready.
constexpr unsigned kMessageId = 0;  // the identifier of UCX's active message
constexpr size_t kPrefixBytes = 8;
constexpr uint8_t kPrefixVersion = 3;
enum class Kind : uint8_t {
  kData = 0,
  kGoodbye = 1,
  kGoodbyeAck = 2,
  kHello = 3,
  kLane = 4,
  kReady = 5,
  kProof = 6,
};
// A worker address of UCX 1.13 with shared memory only has 108 bytes.
constexpr size_t kMaxControlBytes = 512;
constexpr size_t kMaxRecordBytes = kPrefixBytes + kMaxControlBytes;

struct Prefix {
  uint32_t sequence = 0;
  Kind kind = Kind::kData;
};
void Pack(Prefix prefix, std::byte* out);
// False if these bytes are not ours.
bool Unpack(const std::byte* in, Prefix* prefix);

// Why UCX has ended an operation that we did not cancel.
absl::Status PeerError(absl::string_view what, ucs_status_t status);
// Said, since a cache of UCX's own may be wrong about memory of others.
ucs_memory_type_t MemoryTypeOf(Device device);

// UCX may let small messages pass large ones; a peer whose messages are
// further apart than this is broken.
constexpr uint32_t kReorderWindow = 1 << 12;

struct Outgoing {
  Sender* sender = nullptr;  // null: abandoned, nobody waits for UCX
  EndpointId endpoint = 0;
  Kind kind = Kind::kData;
  std::array<std::byte, kMaxRecordBytes> header;
  size_t header_bytes = 0;  // with the prefix
  ConstBytes payload;
  SendDone done;     // kData only
  size_t place = 0;  // in Endpoint::lane_sends, while UCX has it
  ucs_status_t result = UCS_OK;
};

struct Incoming {
  Receiver* receiver = nullptr;  // null: abandoned
  EndpointId endpoint = 0;
  ucp_worker_h worker = nullptr;  // the worker that heard it
  Kind kind = Kind::kData;
  uint32_t sequence = 0;
  std::array<std::byte, kMaxControlBytes> header;
  size_t header_bytes = 0;
  size_t payload_bytes = 0;
  void* descriptor = nullptr;   // what UCX keeps for us; null: nothing
  std::vector<std::byte> copy;  // the payload, where UCX does not keep it
  bool is_rendezvous = false;
  Bytes target;  // what OnHeader gave
  bool has_arrived = false;
  ucs_status_t result = UCS_OK;
};

// kOpen --Close--> kClosing --acknowledged, or grace over--> cut
// kOpen --kGoodbye--> kPeerClosed --peer disconnects, or grace over--> cut
// any --failure--> kFailed --> cut; and when UCX has let go of all: OnClosed.
enum class State : uint8_t { kOpen, kClosing, kPeerClosed, kFailed };

// Where kData goes: waits until the sides agree.
enum class Route : uint8_t { kUnknown, kNet, kShm };

struct Endpoint {
  Endpoints* table = nullptr;
  Receiver* receiver = nullptr;
  EndpointId id = 0;
  ucp_ep_h handle = nullptr;
  State state = State::kOpen;
  absl::Status why;  // what OnClosed will say; set when not open
  TimePoint close_by;
  bool is_announced = false;  // the owner knows it
  bool is_acknowledged = false;
  bool is_cut = false;                       // ucp_ep_close_nbx was called
  ucs_status_ptr_t close_request = nullptr;  // null: finished

  Proof proof;
  Route route = Route::kUnknown;
  bool has_greeted = false;        // the peer, by kHello
  bool has_heard_lane = false;     // the peer's
  bool is_lane_ready = false;      // we have opened the peer's lane
  bool has_heard_ready = false;    // the peer's verdict
  bool is_peer_ready = false;      // and what it was
  std::unique_ptr<Lane> lane;      // null: no shared memory
  std::deque<Outgoing*> unrouted;  // until the route is known

  // Messages that UCX has, over shared memory.
  std::vector<Outgoing*> lane_sends;

  uint32_t next_to_send = 0;
  uint32_t next_to_announce = 0;
  std::map<uint32_t, Incoming*> early;  // arrived before its predecessor
  std::deque<Incoming*> announced;      // not yet heard, in order
  size_t num_sends = 0;                 // messages whose `done` is due
  size_t num_receives = 0;              // messages that UCX is working on
};

}  // namespace telegrad::ucx
