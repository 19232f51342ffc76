#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "base/bytes.h"

// What peers say to each other over one TCP connection, little-endian.
//   each direction = hello record*
//   record = kind:u8 header_bytes:u8 zero:u16 payload_bytes:u32 header payload
// Whoever has connected speaks first; the other side answers a right hello.
namespace telegrad::tcp {

enum class Kind : uint8_t {
  kHello = 0x54,  // of version 1: "T", 1, zero, "GRAD" where the size stands
  kMessage = 1,
  kGoodbye = 2,  // nothing follows, and nothing more is heard
};

struct Record {
  Kind kind = Kind::kMessage;
  size_t header_bytes = 0;
  size_t payload_bytes = 0;
};

constexpr size_t kRecordBytes = 8;  // before the header

void PackRecord(const Record& record, std::byte* out);
void PackHello(std::byte* out);

bool IsHello(const std::byte* bytes);
// InvalidArgument: no record, or one beyond the limits of a message.
absl::StatusOr<Record> ParseRecord(const std::byte* bytes);

}  // namespace telegrad::tcp
