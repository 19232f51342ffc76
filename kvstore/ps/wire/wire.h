#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/exit_code.h"
#include "compression/threshold.h"
#include "kvstore/engine/codec/settings.h"
#include "kvstore/engine/codec/shard_plan.h"

// The 64-byte header before every payload on a data connection, little-endian:
//   0 magic "TGR1"      4 version u8     5 type u8       6 flags u16
//   8 epoch u64        16 step u64      24 priority i32 28 key u32
//  32 chunk u32        36 payload u32   40 source u16   42 destination u16
//  44 contributors u16 46 scale i16     48 codec u8     49 codec version u8
//  50 reply format u8  51 packing u8    52 dtype u8     53 modes u8
//  54 proposed scale i16                56 payload CRC  60 header CRC
// Modes: in force in bits 0 to 3, proposed or agreed in bits 4 to 7.
// Both checks are CRC-32C: of bytes 0..55 and then the payload, so that a
// payload under a foreign header is found; and of bytes 0..59.
// docs/wire_format.md tells what each field means for each type.
namespace telegrad {

constexpr uint8_t kFrameVersion = 3;

enum class FrameType : uint8_t {
  kHello = 1,      // worker -> server: handshake
  kChallenge = 2,  // server -> worker
  kProof = 3,      // worker -> server
  kReady = 4,      // server -> worker: authenticated
  kInit = 5,       // worker -> server: a value of a chunk for all, dense
  kPull = 6,       // worker -> server: the chunk's value, no payload
  kValue = 7,      // server -> worker: answer to kPull
  kPropose = 8,    // worker -> server: wanted scale before the first push
  kAgree = 9,      // server -> worker: scale in force
  kPush = 10,      // worker -> server: encoded gradient
  kReply = 11,     // server -> worker: result of the round
  kAck = 12,       // server -> worker: round done, nothing asked for
  kDeclare = 15,   // worker 0 -> server: new tensors, and the job's settings
  kDeclared = 16,  // server -> worker 0: they are known
  kRates = 17,     // worker 0 -> server: the optimizer's new rates
  kAskState = 18,  // worker 0 -> server: what it keeps of a chunk
  kState = 19,     // server -> worker 0: answer
  kSetState = 20,  // worker 0 -> server: what it is to keep; kDeclared answers
  kPushRows = 21,  // worker -> server: a push of some rows (engine/rows.h)
  kPullRows = 22,  // worker -> server: which rows of the value; kValue answers
};
constexpr uint8_t kMaxFrameType = 22;
// "push", a literal.
const char* Name(FrameType type);

// Flags.
constexpr uint16_t kFlagNoReply = 1;  // push: answer with kAck
// The payload CRC is of bytes 0..55 alone: the payload does not leave the
// memory of one machine, or goes over a network that checks its packets.
constexpr uint16_t kFlagUnchecked = 2;
// Pull: not the last round's result, but the kInit of this step, dense.
constexpr uint16_t kFlagNextValue = 4;
// Push, to servers that drop the slowest: the round waits for all workers.
constexpr uint16_t kFlagTakesAll = 8;

enum class WireDtype : uint8_t { kFloat32 = 0 };

struct FrameHeader {
  FrameType type = FrameType::kPush;
  uint16_t flags = 0;
  uint64_t epoch = 0;
  uint64_t step = 0;
  int32_t priority = 0;  // larger first; an answer has its request's
  uint32_t key = 0;
  uint32_t chunk = 0;
  uint32_t payload_bytes = 0;
  uint16_t source = 0;
  uint16_t destination = 0;
  uint16_t contributors = 0;
  int16_t scale = kFixedScale;
  uint8_t codec = 0;
  uint8_t codec_version = 0;
  uint8_t reply_format = 0;
  uint8_t packing = 0;
  WireDtype dtype = WireDtype::kFloat32;
  CodecMode mode = CodecMode::kCodec;           // in force in the step
  CodecMode proposed_mode = CodecMode::kCodec;  // a wish; in answers: agreed
  int16_t proposed_scale = kNoScale;
  uint32_t payload_crc = 0;  // SerializeFrame sets it

  bool operator==(const FrameHeader&) const = default;
};

using FrameHeaderBytes = std::array<std::byte, kFrameHeaderBytes>;

// Sets both checks; `payload` must have header.payload_bytes bytes. Who sends
// the same to several computes its Crc32c once.
FrameHeaderBytes SerializeFrame(
    const FrameHeader& header, ConstBytes payload,
    std::optional<uint32_t> payload_crc32c = std::nullopt);

// Reads and checks a header: length, magic, check, version, type, dtype,
// modes. DataLoss when bytes are damaged, InvalidArgument when they
// are whole but not ours.
absl::StatusOr<FrameHeader> ParseFrameHeader(ConstBytes bytes);

// The fields of a header that ParseFrameHeader has let pass.
FrameHeader ReadFrameHeader(ConstBytes bytes);

// DataLoss unless the payload is the one that `header_bytes` was made for.
absl::Status CheckFramePayload(ConstBytes header_bytes, ConstBytes payload);

// The exit code of a job that ends because of a frame.
ExitCode ExitCodeOfFrame(const absl::Status& why);

// A push, as headers carry it.
struct PushHeader : PushRecord {
  bool wants_reply = true;
  bool takes_all = false;
  int32_t priority = 0;
};
// Bytes from a network: fields may be anything.
absl::StatusOr<PushHeader> PushOf(const FrameHeader& header);
ReplyRecord ReplyOf(const FrameHeader& header);
// The codec of an answer's payload; any byte.
inline uint8_t CodecOfResult(const FrameHeader& header) {
  const bool is_dense =
      header.reply_format == static_cast<uint8_t>(ReplyFormat::kDense);
  return is_dense ? uint8_t{0} : header.codec;
}
void Write(const PushRecord& push, FrameHeader& header);
void Write(const ReplyRecord& reply, FrameHeader& header);
void Write(const PayloadFormat& format, FrameHeader& header);

}  // namespace telegrad
