#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "transport/transport.h"

// What stands before each header, little-endian:
//   prefix = kind:u8 version:u8 zero:u16 sequence:u32 body:u32 crc:u32
// where crc is the CRC-32C of the 12 bytes before it and of the header behind.
namespace telegrad::resend {

constexpr size_t kPrefixBytes = 16;
static_assert(kPrefixBytes <= kMaxPrefixBytes);

enum class Kind : uint8_t {
  kMessage = 'M',  // body: CRC-32C of the payload
  kEnd = 'E',      // the last message, nobody hears it. body: messages taken
  kTaken = 'T',    // sequence: messages taken so far. body: 0
  kAgain = 'N',    // as kTaken, and that one is lacking. body: IsHere
};

// Messages are counted from 0 in each direction of an endpoint, modulo 2^32.
struct Prefix {
  Kind kind = Kind::kMessage;
  uint32_t sequence = 0;
  uint32_t body = 0;
};

// How many messages behind a lacking one kAgain tells of, one bit each: bit i,
// whether message sequence + 1 + i is here.
constexpr uint32_t kAckedBits = 32;
constexpr bool IsHere(uint32_t body, uint32_t i) {
  return (body >> i & 1) != 0;
}

// Whether `sequence` comes before `other`, as far as 2^31 apart.
constexpr bool IsBefore(uint32_t sequence, uint32_t other) {
  return static_cast<int32_t>(sequence - other) < 0;
}

// Writes kPrefixBytes to `out`.
void PackPrefix(const Prefix& prefix, ConstBytes header, std::byte* out);

// Reads the prefix of a whole inner header. DataLoss: not as it was sent.
// InvalidArgument: as it was sent, but none of ours: another version or kind,
// or a payload or header where there is none.
absl::StatusOr<Prefix> ParsePrefix(ConstBytes header, size_t payload_bytes);

}  // namespace telegrad::resend
