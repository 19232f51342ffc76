#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "transport/transport.h"

// What one connection of several carries, as headers of the inner transport's
// messages, little-endian:
//   hello = kind:u8 connection:u8 connections:u8 version:u8 zero:u32 group:u64
//   part  = kind:u8 zero:u24 sequence:u32 payload_bytes:u32 offset:u32 header
//   heard = kind:u8 zero:u24 messages:u32 weight:u64
//   ask   = kind:u8 zero:u24 messages:u32 zero:u64
// Each connection begins with a hello, which only the side that connects sends.
// Connections of one group make one endpoint. A part is the payload's bytes
// from `offset` on, kPartBytes or as many as are left; each part has the
// message's whole header, so that whichever comes first begins it. Heard says
// how many messages were heard so far, and what they weigh: after the first,
// until when all goes over one connection, then now and again, and after as
// many as were asked for by a sender who may not go on before.
namespace telegrad::multirail {

constexpr size_t kPartBytes = size_t{256} << 10;
constexpr size_t kMaxParts = kMaxPayloadBytes / kPartBytes;
constexpr size_t kPrefixBytes = 16;
static_assert(kPrefixBytes <= kMaxPrefixBytes);

struct Hello {
  size_t connection = 0;   // below `connections`
  size_t connections = 1;  // at most kMaxConnections
  uint64_t group = 0;      // random; the same for all of an endpoint
};

struct Part {
  uint32_t sequence = 0;     // the message's, from 0 in each direction
  size_t payload_bytes = 0;  // the whole message's
  size_t index = 0;          // the part's
};

struct ReceivedSoFar {
  uint32_t messages = 0;  // modulo 2^32
  uint64_t weight = 0;
};

// What a receiver has to hold of a message that comes before its turn.
constexpr size_t kMessageWeight = 512;
constexpr uint64_t Weight(size_t payload_bytes) {
  return kMessageWeight + payload_bytes;
}
// How much a sender may be ahead of what was heard, or one message; a peer that
// has heard little holds little.
constexpr uint64_t MaxLead(uint64_t heard_weight) {
  constexpr uint64_t kFirst = uint64_t{1} << 20, kMost = kMaxPayloadBytes;
  return heard_weight < kMost - kFirst ? kFirst + heard_weight : kMost;
}
constexpr uint32_t kMaxLeadMessages = kMaxPayloadBytes / kMessageWeight;

inline size_t NumParts(size_t payload_bytes) {
  return payload_bytes == 0 ? 1 : (payload_bytes - 1) / kPartBytes + 1;
}
// Bytes of part `index` of a payload.
size_t PartBytes(size_t payload_bytes, size_t index);

void PackHello(const Hello& hello, std::byte* out);
void PackPart(const Part& part, std::byte* out);
void PackAck(const ReceivedSoFar& heard, std::byte* out);
void PackAsk(uint32_t messages, std::byte* out);

// Whether it is no part, but a heard or an ask, right or wrong.
bool IsAck(ConstBytes header);
bool IsAsk(ConstBytes header);

// InvalidArgument: none, or one that cannot be.
absl::StatusOr<Hello> ParseHello(ConstBytes header, size_t payload_bytes);
absl::StatusOr<Part> ParsePart(ConstBytes header, size_t part_bytes);
absl::StatusOr<ReceivedSoFar> ParseAck(ConstBytes header, size_t payload_bytes);
absl::StatusOr<uint32_t> ParseAsk(ConstBytes header, size_t payload_bytes);

}  // namespace telegrad::multirail
