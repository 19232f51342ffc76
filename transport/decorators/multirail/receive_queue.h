#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/decorators/multirail/wire.h"
#include "transport/transport.h"

namespace telegrad::multirail {

// Memory for parts that have come before their message could begin: of larger
// ones it is kept, as fresh pages cost more than the copy. One thread.
class PartBuffers {
 public:
  Buffer Get(size_t bytes);
  void Put(Buffer buffer);

 private:
  std::vector<Buffer> spare_;  // buffers of kPartBytes
};

// What comes to one endpoint, in parts in any order, and is heard in the order
// of sending. One thread.
class ReceiveQueue {
 public:
  struct Message {
    std::array<std::byte, kMaxCarriedBytes - kPrefixBytes> header;
    size_t header_bytes = 0;
    size_t payload_bytes = 0;
    Bytes target = {};  // what OnHeader gave

    ConstBytes header_view() const { return {header.data(), header_bytes}; }
  };

  ReceiveQueue(EndpointId endpoint, TransportHandler& handler,
               PartBuffers& buffers)
      : endpoint_(endpoint), handler_(handler), buffers_(buffers) {}

  // A part begins to come. Where it goes; null: nobody wants it, since Stop was
  // called meanwhile.
  absl::StatusOr<std::optional<Bytes>> Begin(ConstBytes header,
                                             size_t part_bytes);
  // It has come.
  void HasCome(const Part& part);
  // The next message, once all of it is where it belongs; it counts as heard.
  std::optional<Message> TakeNext();
  const ReceivedSoFar& heard() const { return heard_; }

  // Nothing is heard any more.
  void Stop() { is_stopped_ = true; }
  bool is_stopped() const { return is_stopped_; }

 private:
  // A part that has come before its message could begin.
  struct Held {
    Buffer buffer;
    size_t size = 0;
    bool has_arrived = false;
  };
  using HeldParts = std::map<size_t, Held>;  // by index
  struct Incoming : Message {
    std::bitset<kMaxParts> begun;  // parts
    size_t num_arrived = 0;        // parts, where they belong
    HeldParts held = {};
  };

  absl::StatusOr<Incoming*> Find(const Part& part, ConstBytes header);
  absl::Status BeginMessage(Incoming& message);
  absl::StatusOr<Bytes> Hold(Incoming& message, size_t index,
                             size_t part_bytes);
  HeldParts::iterator PlaceHeld(Incoming& message, HeldParts::iterator held);

  const EndpointId endpoint_;
  TransportHandler& handler_;
  PartBuffers& buffers_;
  bool is_stopped_ = false;
  // Messages that were not heard; null: no part of it has come.
  std::deque<std::unique_ptr<Incoming>> incoming_;
  size_t num_begun_ = 0;      // how many of incoming_ have had their OnHeader
  uint64_t weight_held_ = 0;  // in buffers of Held
  ReceivedSoFar heard_ = {};  // as many as the sequence of the next
};

}  // namespace telegrad::multirail
