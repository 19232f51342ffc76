#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/socket.h"
#include "transport/tcp/incoming.h"
#include "transport/tcp/same_host.h"
#include "transport/tcp/send_queue.h"
#include "transport/transport.h"

namespace telegrad::tcp {

constexpr size_t kTurnBytes = size_t{1} << 20;  // then others have their turn

// kOpen --Close--> kClosing --the peer disconnects, or grace over--> gone
// any --failure, or the peer's goodbye--> kFailed --> gone
enum class State : uint8_t { kOpen, kClosing, kFailed };

struct Connection {
  Connection(PeerSocket peer, size_t max_header_bytes, Proof own_proof)
      : socket(std::move(peer.socket)),
        proof(std::move(own_proof)),
        incoming(peer.same_host.has_value(), max_header_bytes) {
    if (peer.same_host) memory.emplace(peer.same_host->process);
  }
  // To a process of this machine, without TCP.
  bool is_local() const { return memory.has_value(); }
  bool is_over() const { return state == State::kFailed || has_ended; }
  bool has_work() const {
    const bool may_write =
        !opening.empty() || (proof.is_done() && !queue.empty());
    return !is_over() && (is_readable || (is_writable && may_write));
  }
  // What was sent before Close leaves once the peer has proved who it is.
  bool may_hear() const {
    return state == State::kOpen ||
           (state == State::kClosing && !proof.is_done());
  }

  // Writes what stands before all messages; false while none may follow.
  bool WriteOpening(size_t* num_moved);

  EndpointId id = 0;
  UniqueFd socket;
  State state = State::kOpen;
  absl::Status why = {};    // what OnClosed will say; set when not open
  TimePoint close_by = {};  // when not open
  TimePoint greet_by = {};  // the peer's hello and proof are due
  bool is_accepted = false;
  bool is_announced = false;  // the owner knows it
  bool is_connecting = false;
  bool has_ended = false;  // the peer has disconnected

  // What epoll said last, and what the socket said since.
  bool is_readable = false;
  bool is_writable = false;
  bool is_ending = false;  // read up to the end
  bool has_turn = false;   // in turns_
  int num_silent_looks = 0;

  std::optional<PeerMemory> memory;  // a local peer's
  Proof proof;
  std::string opening = {};  // hello and proof: they go before the queue
  SendQueue queue = {};
  Incoming incoming;
};

}  // namespace telegrad::tcp
