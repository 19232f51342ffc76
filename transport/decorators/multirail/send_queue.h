#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "transport/decorators/multirail/connections.h"
#include "transport/decorators/multirail/wire.h"
#include "transport/endpoint_table.h"
#include "transport/transport.h"

namespace telegrad::multirail {

// What one endpoint sends, in parts over its connections. One thread.
class SendQueue {
 public:
  // `dispatch` calls Give again: a connection has sent something.
  SendQueue(TransportContext& inner, DueCompletions& due,
            Connections& connections, std::function<void()> dispatch)
      : inner_(inner),
        due_(due),
        connections_(connections),
        dispatch_(std::move(dispatch)) {}

  void Add(ConstBytes header, ConstBytes payload, SendDone done);
  bool empty() const { return queue_.empty(); }
  // To the connections, what they take. False: a part waits for a connection
  // that may stand still while others have sent all; to be called again soon.
  bool Give();
  // The peer tells what it has heard. InvalidArgument: it cannot have.
  absl::Status TakeAck(ConstBytes header, size_t payload_bytes);
  // What is queued ends with `why`; parts that the inner transport has end
  // there.
  void Refuse(const absl::Status& why);

 private:
  struct Outgoing {
    std::array<std::byte, kMaxCarriedBytes> header;
    size_t header_bytes = 0;  // with the prefix
    uint32_t sequence = 0;
    ConstBytes payload = {};
    SendDone done = nullptr;
    size_t num_parts = 0;     // parts that are to be sent
    size_t num_given = 0;     // parts that the inner transport was given
    size_t num_finished = 0;  // parts that were sent
    absl::Status status = {};

    void FinishIfWhole() const {
      if (num_finished == num_parts && done) done(status);
    }
  };

  bool MayBegin(const Outgoing& message) const;
  void AskFor(uint32_t messages);
  void GivePart(Connection& connection,
                const std::shared_ptr<Outgoing>& message);

  TransportContext& inner_;
  DueCompletions& due_;
  Connections& connections_;
  const std::function<void()> dispatch_;
  std::deque<std::shared_ptr<Outgoing>> queue_;  // parts of it are here
  uint32_t next_sequence_ = 0;
  // The weight of messages of which parts were given.
  uint64_t weight_begun_ = 0;
  ReceivedSoFar heard_by_peer_ = {};
  std::optional<uint32_t> has_asked_for_ = {};  // messages
};

}  // namespace telegrad::multirail
