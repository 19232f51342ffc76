#include "kvstore/ps/wire/wire.h"

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/crc32c.h"
#include "base/endian.h"

namespace telegrad {
namespace {

constexpr uint32_t kMagic = 0x31524754;  // "TGR1"
constexpr size_t kFlagsOffset = 6;
constexpr size_t kPayloadCrcOffset = 56;
constexpr size_t kHeaderCrcOffset = 60;

uint32_t PayloadCrc(const std::byte* header, ConstBytes payload,
                    std::optional<uint32_t> of_payload) {
  const uint32_t crc = Crc32c(header, kPayloadCrcOffset);
  const auto flags = LoadLittleEndian<uint16_t>(header + kFlagsOffset);
  if ((flags & kFlagUnchecked) != 0) return crc;
  if (of_payload) return Crc32cCombine(crc, *of_payload, payload.size);
  return Crc32c(payload.data, payload.size, crc);
}

}  // namespace

const char* Name(FrameType type) {
  switch (type) {
    case FrameType::kHello:
    case FrameType::kChallenge:
    case FrameType::kProof:
    case FrameType::kReady:
      return "handshake";
    case FrameType::kInit:
      return "init";
    case FrameType::kPull:
      return "pull";
    case FrameType::kValue:
      return "value";
    case FrameType::kPropose:
      return "propose";
    case FrameType::kAgree:
      return "agree";
    case FrameType::kPush:
      return "push";
    case FrameType::kReply:
      return "reply";
    case FrameType::kAck:
      return "ack";
    case FrameType::kDeclare:
      return "declare";
    case FrameType::kDeclared:
      return "declared";
    case FrameType::kRates:
      return "rates";
    case FrameType::kAskState:
      return "ask state";
    case FrameType::kState:
      return "state";
    case FrameType::kSetState:
      return "set state";
    case FrameType::kPushRows:
      return "push rows";
    case FrameType::kPullRows:
      return "pull rows";
  }
  return "?";
}

FrameHeaderBytes SerializeFrame(const FrameHeader& header, ConstBytes payload,
                                std::optional<uint32_t> payload_crc32c) {
  TELEGRAD_CHECK(payload.size == header.payload_bytes,
                 "a frame's header states its payload's length");
  FrameHeaderBytes bytes{};
  std::byte* to = bytes.data();
  StoreLittleEndian(to + 0, kMagic);
  StoreLittleEndian(to + 4, kFrameVersion);
  StoreLittleEndian(to + 5, header.type);
  StoreLittleEndian(to + kFlagsOffset, header.flags);
  StoreLittleEndian(to + 8, header.epoch);
  StoreLittleEndian(to + 16, header.step);
  StoreLittleEndian(to + 24, header.priority);
  StoreLittleEndian(to + 28, header.key);
  StoreLittleEndian(to + 32, header.chunk);
  StoreLittleEndian(to + 36, header.payload_bytes);
  StoreLittleEndian(to + 40, header.source);
  StoreLittleEndian(to + 42, header.destination);
  StoreLittleEndian(to + 44, header.contributors);
  StoreLittleEndian(to + 46, header.scale);
  StoreLittleEndian(to + 48, header.codec);
  StoreLittleEndian(to + 49, header.codec_version);
  StoreLittleEndian(to + 50, header.reply_format);
  StoreLittleEndian(to + 51, header.packing);
  StoreLittleEndian(to + 52, header.dtype);
  StoreLittleEndian(
      to + 53,
      static_cast<uint8_t>(static_cast<unsigned>(header.mode) |
                           static_cast<unsigned>(header.proposed_mode) << 4));
  StoreLittleEndian(to + 54, header.proposed_scale);
  StoreLittleEndian(to + kPayloadCrcOffset,
                    PayloadCrc(to, payload, payload_crc32c));
  StoreLittleEndian(to + kHeaderCrcOffset, Crc32c(to, kHeaderCrcOffset));
  return bytes;
}

absl::StatusOr<FrameHeader> ParseFrameHeader(ConstBytes bytes) {
  if (bytes.size != kFrameHeaderBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "frame header of ", bytes.size, " bytes, not ", kFrameHeaderBytes));
  }
  const std::byte* from = bytes.data;
  if (LoadLittleEndian<uint32_t>(from) != kMagic) {
    return absl::DataLossError("frame header without the magic TGR1");
  }
  if (LoadLittleEndian<uint32_t>(from + kHeaderCrcOffset) !=
      Crc32c(from, kHeaderCrcOffset)) {
    return absl::DataLossError("frame header fails its check");
  }
  const auto version = LoadLittleEndian<uint8_t>(from + 4);
  if (version != kFrameVersion) {
    return absl::InvalidArgumentError(absl::StrCat(
        "frame version ", version, ", this build speaks ", kFrameVersion));
  }
  const auto type = LoadLittleEndian<uint8_t>(from + 5);
  const auto dtype = LoadLittleEndian<uint8_t>(from + 52);
  const auto modes = LoadLittleEndian<uint8_t>(from + 53);
  if (type == 0 || type > kMaxFrameType || dtype != 0 ||
      (modes & 0xF) > kMaxCodecMode || (modes >> 4) > kMaxCodecMode) {
    return absl::InvalidArgumentError(
        absl::StrCat("frame of type ", type, ", dtype ", dtype, ", modes ",
                     modes, ": not known to this build"));
  }
  return ReadFrameHeader(bytes);
}

FrameHeader ReadFrameHeader(ConstBytes bytes) {
  const std::byte* from = bytes.data;
  const auto modes = LoadLittleEndian<uint8_t>(from + 53);
  return {
      .type = LoadLittleEndian<FrameType>(from + 5),
      .flags = LoadLittleEndian<uint16_t>(from + kFlagsOffset),
      .epoch = LoadLittleEndian<uint64_t>(from + 8),
      .step = LoadLittleEndian<uint64_t>(from + 16),
      .priority = LoadLittleEndian<int32_t>(from + 24),
      .key = LoadLittleEndian<uint32_t>(from + 28),
      .chunk = LoadLittleEndian<uint32_t>(from + 32),
      .payload_bytes = LoadLittleEndian<uint32_t>(from + 36),
      .source = LoadLittleEndian<uint16_t>(from + 40),
      .destination = LoadLittleEndian<uint16_t>(from + 42),
      .contributors = LoadLittleEndian<uint16_t>(from + 44),
      .scale = LoadLittleEndian<int16_t>(from + 46),
      .codec = LoadLittleEndian<uint8_t>(from + 48),
      .codec_version = LoadLittleEndian<uint8_t>(from + 49),
      .reply_format = LoadLittleEndian<uint8_t>(from + 50),
      .packing = LoadLittleEndian<uint8_t>(from + 51),
      .dtype = WireDtype::kFloat32,
      .mode = static_cast<CodecMode>(modes & 0xF),
      .proposed_mode = static_cast<CodecMode>(modes >> 4),
      .proposed_scale = LoadLittleEndian<int16_t>(from + 54),
      .payload_crc = LoadLittleEndian<uint32_t>(from + kPayloadCrcOffset),
  };
}

absl::Status CheckFramePayload(ConstBytes header_bytes, ConstBytes payload) {
  const auto expected =
      LoadLittleEndian<uint32_t>(header_bytes.data + kPayloadCrcOffset);
  if (PayloadCrc(header_bytes.data, payload, std::nullopt) != expected) {
    return absl::DataLossError(
        absl::StrCat("payload of ", payload.size, " bytes fails its check"));
  }
  return absl::OkStatus();
}

ExitCode ExitCodeOfFrame(const absl::Status& why) {
  if (absl::IsDataLoss(why)) return ExitCode::kIntegrity;
  return absl::IsResourceExhausted(why) ? ExitCode::kResourceLimit
                                        : ExitCode::kMismatch;
}

absl::StatusOr<PushHeader> PushOf(const FrameHeader& header) {
  if (header.contributors != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("push of ", header.contributors, " contributors"));
  }
  PushHeader push;
  push.step = header.step;
  push.payload_bytes = header.payload_bytes;
  push.format = {.codec = header.codec,
                 .codec_version = header.codec_version,
                 .packing = header.packing,
                 .reply = static_cast<ReplyFormat>(header.reply_format)};
  push.settings = {.mode = header.mode, .scale = header.scale};
  push.wish = {.mode = header.proposed_mode, .scale = header.proposed_scale};
  push.wants_reply = (header.flags & kFlagNoReply) == 0;
  push.takes_all = (header.flags & kFlagTakesAll) != 0;
  push.priority = header.priority;
  return push;
}

ReplyRecord ReplyOf(const FrameHeader& header) {
  return {.format = static_cast<ReplyFormat>(header.reply_format),
          .settings = {.from_step = header.step,
                       .mode = header.mode,
                       .scale = header.scale},
          .agreed = {.from_step = header.step + 2,
                     .mode = header.proposed_mode,
                     .scale = header.proposed_scale}};
}

void Write(const PayloadFormat& format, FrameHeader& header) {
  header.codec = format.codec;
  header.codec_version = format.codec_version;
  header.packing = format.packing;
  header.reply_format = static_cast<uint8_t>(format.reply);
}

void Write(const PushRecord& push, FrameHeader& header) {
  header.step = push.step;
  Write(push.format, header);
  header.scale = push.settings.scale;
  header.mode = push.settings.mode;
  header.proposed_scale = push.wish.scale;
  header.proposed_mode = push.wish.mode;
}

void Write(const ReplyRecord& reply, FrameHeader& header) {
  header.reply_format = static_cast<uint8_t>(reply.format);
  header.scale = reply.settings.scale;
  header.mode = reply.settings.mode;
  header.proposed_scale = reply.agreed.scale;
  header.proposed_mode = reply.agreed.mode;
}

}  // namespace telegrad
