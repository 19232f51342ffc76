#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/bytes.h"
#include "transport/transport.h"

// What peers say to each other, little-endian. Each endpoint has a TCP
// connection that carries their proofs (transport/proof.h), then one hello in
// each direction, and is the sign of life afterwards; everything else goes by
// libfabric, as records.
namespace telegrad::ofi {

// hello = magic:u32 version:u16 bytes:u16 endpoint:u32 zero:u32 token:u64
//         fabric_bytes:u16 address_bytes:u16 zero:u32 fabric address
struct Hello {
  uint32_t endpoint = 0;  // what its sender calls this connection
  uint64_t token = 0;     // to be shown in each record to that sender
  std::string fabric;     // must be the same on both sides
  std::string address;    // libfabric's address, as fi_getname gives it
};
constexpr size_t kHelloBytes = 32;  // before the two texts
constexpr size_t kMaxHelloText = 512;
constexpr size_t kMaxHelloBytes = kHelloBytes + 2 * kMaxHelloText;

// Texts are at most kMaxHelloText long.
std::string PackHello(const Hello& hello);

// nullopt: more bytes are needed. InvalidArgument: not a hello of this version,
// or there is more behind it.
absl::StatusOr<std::optional<Hello>> ParseHello(absl::string_view received);

// A message is one record or more, in the order of their sequence:
// record = token:u64 to:u32 sequence:u32 payload_bytes:u32 offset:u32
//          header_bytes:u16 kind:u8 version:u8 zero:u32 header data
// Only a first record (offset 0) has a header. `data` is what of the payload
// begins at offset; of a large message it is where the payload is: nothing for
// a lane, address:u64 for shared memory.
enum class Kind : uint8_t {
  kData = 0,
  kGoodbye = 1,     // nothing follows
  kGoodbyeAck = 2,  // everything up to the goodbye was heard
  // To send large messages another way. In shared memory the header is the
  // address of the sender's token, for the hearer to try if it can read there.
  kOffer = 3,
  kAccept = 4,  // takes an offer; the header is the address of a lane, if any
  kLarge = 5,   // a message whose payload comes another way
  kTaken = 6,   // the first large message that was not taken yet is now
};

struct Record {
  uint64_t token = 0;
  uint32_t to = 0;
  uint32_t sequence = 0;
  uint32_t payload_bytes = 0;
  uint32_t offset = 0;
  Kind kind = Kind::kData;
  ConstBytes header;
  ConstBytes data;
};
constexpr size_t kRecordBytes = 32;  // before header and data

// Large messages of one endpoint and direction that are not taken yet.
constexpr size_t kMaxLarge = 8;
constexpr size_t kPlaceBytes = 8;  // bytes of kLarge's data in shared memory

// Writes all but data; returns how many bytes: kRecordBytes + header.size.
size_t PackRecord(const Record& record, std::byte* out);

// Views into `bytes`. nullopt: these are not a record, or one that contradicts
// itself.
std::optional<Record> ParseRecord(ConstBytes bytes,
                                  size_t max_header_bytes = kMaxHeaderBytes);

}  // namespace telegrad::ofi
