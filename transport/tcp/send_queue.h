#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <deque>
#include <memory_resource>
#include <utility>

#include "absl/status/status.h"
#include "base/bytes.h"
#include "transport/endpoint_table.h"
#include "transport/tcp/wire.h"
#include "transport/transport.h"

namespace telegrad::tcp {

struct Outgoing {
  std::array<std::byte, kMaxHeadBytes> head;  // record and header
  size_t head_bytes = 0;
  ConstBytes payload = {};  // what is written of it
  bool is_exposed = false;  // the peer reads the payload: done when it has
  SendDone done = nullptr;
};

Outgoing MakeMessage(ConstBytes header, ConstBytes payload, bool is_exposed,
                     SendDone done);
Outgoing MakeControl(const Record& record);  // without a header
Outgoing MakeOffer(const Mark& mark);        // where it stays

// What one connection has to write, in order, and of what was written the
// payloads that the peer has yet to copy. Adds to `done` what is over. One
// thread.
class SendQueue {
 public:
  struct Written {
    size_t bytes = 0;
    bool is_full = false;    // the socket takes no more, for now
    bool is_broken = false;  // or ever; reading it says why
  };

  void Add(Outgoing&& message) { queue_.push_back(std::move(message)); }
  bool empty() const { return queue_.empty(); }  // all is written
  size_t size() const { return queue_.size(); }

  // To a non-blocking socket, up to about `most_bytes`.
  Written Write(int socket, size_t most_bytes, DueCompletions& done);
  // The peer has copied the oldest that is exposed; false: none is.
  bool FinishExposed(DueCompletions& done);
  // Ends what is exposed, and what is not written.
  void End(const absl::Status& exposed, const absl::Status& unwritten,
           DueCompletions& done);

 private:
  static constexpr size_t kMaxPieces = 64;  // pieces of one call of the kernel
  using Pieces = std::array<iovec, kMaxPieces>;

  size_t Gather(size_t most_bytes, Pieces& out) const;
  void HandleWritten(size_t bytes, DueCompletions& done);

  // Keeps what the queues have given back: messages cost no allocation once
  // there were as many at a time.
  std::pmr::unsynchronized_pool_resource memory_ = {};
  std::pmr::deque<Outgoing> queue_{&memory_};
  size_t num_written_ = 0;  // bytes of the first
  std::pmr::deque<SendDone> exposed_{&memory_};
};

}  // namespace telegrad::tcp
