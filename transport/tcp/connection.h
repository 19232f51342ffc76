#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory_resource>

#include "absl/status/status.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/socket.h"
#include "transport/tcp/wire.h"
#include "transport/transport.h"

namespace telegrad::tcp {

constexpr size_t kMaxHeadBytes = kRecordBytes + kPlaceBytes + kMaxCarriedBytes;

struct Outgoing {
  std::array<std::byte, kMaxHeadBytes> head;  // record and header
  size_t head_bytes = 0;
  ConstBytes payload = {};  // what is written of it
  bool is_exposed = false;  // the peer reads the payload: done when it has
  SendDone done = nullptr;
};

// The message that is being received.
struct Incoming {
  std::array<std::byte, kMaxHeadBytes> head;
  size_t head_bytes = 0;  // that have come
  Record record = {};     // valid from kRecordBytes on

  const std::byte* extra() const { return head.data() + kRecordBytes; }
  ConstBytes header() const {
    const size_t place = record.kind == Kind::kExposed ? kPlaceBytes : 0;
    return {extra() + place, record.header_bytes - place};
  }

  bool is_begun = false;  // OnHeader was called
  Bytes target = {};
  size_t received = 0;  // of the payload
};

// kOpen --Close--> kClosing --the peer disconnects, or grace over--> gone
// any --failure, or the peer's goodbye--> kFailed --> gone
enum class State : uint8_t { kOpen, kClosing, kFailed };

struct Connection {
  EndpointId id = 0;
  UniqueFd socket = {};
  State state = State::kOpen;
  absl::Status why = {};    // what OnClosed will say; set when not open
  TimePoint close_by = {};  // when not open
  TimePoint greet_by = {};  // the peer's hello is due
  bool is_local = false;    // to a process of this machine, without TCP
  int peer_process = 0;     // of a local one; 0: not known
  bool is_accepted = false;
  bool is_announced = false;  // the owner knows it
  bool is_connecting = false;
  bool has_greeted = false;          // the peer's hello has come
  bool has_ended = false;            // the peer has disconnected
  bool has_offered = false;          // the peer, its memory
  bool is_readable_by_peer = false;  // our memory
  bool reads_peer = false;

  // What epoll said last, and what the socket said since.
  bool is_readable = false;
  bool is_writable = false;
  bool is_ending = false;  // read up to the end
  bool is_active = false;  // is in active_

  // Keeps what the queues have given back: messages cost no allocation once
  // there were as many at a time.
  std::pmr::unsynchronized_pool_resource memory = {};
  std::pmr::deque<Outgoing> queue{&memory};
  size_t num_written = 0;                      // bytes of the first
  std::pmr::deque<SendDone> untaken{&memory};  // of written kExposed
  Incoming incoming = {};
};

}  // namespace telegrad::tcp
