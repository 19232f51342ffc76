#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "transport/transport.h"

// What peers say to each other over one TCP connection, little-endian.
//   each direction = hello proof record*    proof: transport/proof.h
//   record = kind:u8 header_bytes:u8 zero:u16 payload_bytes:u32 header payload
// Whoever has connected speaks first; the other side answers a right hello. No
// record is sent, or heard, before the peer has proved that it has the key.
// Between processes of one machine, both offer to have their memory read. Once
// that is accepted, the payload of a kExposed stays where it is: the receiver
// copies it out of the sender's memory, and says so.
namespace telegrad::tcp {

enum class Kind : uint8_t {
  kHello = 0x54,  // version 2: "T", 2, zero, "GRAD" where the size stands
  kMessage = 1,
  kGoodbye = 2,  // nothing follows, and nothing more is heard
  // Between processes of one machine only.
  kOffer = 3,    // header: a Mark's place u64, and the Mark; no payload
  kAccept = 4,   // the Mark was there; no header, no payload
  kExposed = 5,  // header: the payload's place u64, and the message's header
  kTaken = 6,    // the oldest kExposed was copied; no header, no payload
};

struct Record {
  Kind kind = Kind::kMessage;
  size_t header_bytes = 0;
  size_t payload_bytes = 0;
};

constexpr Record kHelloRecord = {Kind::kHello, 2, 0x44415247};

constexpr size_t kRecordBytes = 8;  // before the header
constexpr size_t kPlaceBytes = 8;   // an address in the sender's memory
constexpr size_t kMaxHeadBytes = kRecordBytes + kPlaceBytes + kMaxCarriedBytes;

// What a process shows of its memory to prove that it is the one it seems.
struct Mark {
  uint64_t process = 0;  // its id
  uint64_t secret = 0;
  bool operator==(const Mark&) const = default;
};
constexpr size_t kOfferBytes = kPlaceBytes + sizeof(Mark);

void PackRecord(const Record& record, std::byte* out);

bool IsHello(const std::byte* bytes);
// InvalidArgument: no record, or one beyond the limits of a message.
absl::StatusOr<Record> ParseRecord(const std::byte* bytes, bool is_local,
                                   size_t max_header_bytes);

struct Offer {
  uint64_t place = 0;  // where the mark lies
  Mark mark;
};
void PackOffer(const Mark* mark, std::byte* out);
Offer UnpackOffer(const std::byte* bytes);

}  // namespace telegrad::tcp
