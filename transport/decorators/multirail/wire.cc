#include "transport/decorators/multirail/wire.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/endian.h"

namespace telegrad::multirail {
namespace {

constexpr std::byte kHelloKind{'H'};
constexpr std::byte kPartKind{'P'};
constexpr std::byte kAckKind{'A'};
constexpr std::byte kAskKind{'Q'};
constexpr std::byte kVersion{1};

// Looks at the first four bytes, before the rest is looked at.
bool IsOfKind(ConstBytes header, std::byte kind) {
  return header.size >= kPrefixBytes &&
         LoadLittleEndian<uint32_t>(header.data) == static_cast<uint32_t>(kind);
}

// A prefix and nothing else.
bool IsBare(ConstBytes header, size_t payload_bytes) {
  return header.size == kPrefixBytes && payload_bytes == 0;
}

}  // namespace

size_t PartBytes(size_t payload_bytes, size_t index) {
  return std::min(kPartBytes, payload_bytes - index * kPartBytes);
}

void PackHello(const Hello& hello, std::byte* out) {
  out[0] = kHelloKind;
  out[1] = static_cast<std::byte>(hello.connection);
  out[2] = static_cast<std::byte>(hello.connections);
  out[3] = kVersion;
  StoreLittleEndian<uint32_t>(out + 4, 0);
  StoreLittleEndian(out + 8, hello.group);
}

void PackPart(const Part& part, std::byte* out) {
  StoreLittleEndian(out, static_cast<uint32_t>(kPartKind));
  StoreLittleEndian(out + 4, part.sequence);
  StoreLittleEndian(out + 8, static_cast<uint32_t>(part.payload_bytes));
  StoreLittleEndian(out + 12, static_cast<uint32_t>(part.index * kPartBytes));
}

void PackAck(const ReceivedSoFar& heard, std::byte* out) {
  StoreLittleEndian(out, static_cast<uint32_t>(kAckKind));
  StoreLittleEndian(out + 4, heard.messages);
  StoreLittleEndian(out + 8, heard.weight);
}

void PackAsk(uint32_t messages, std::byte* out) {
  StoreLittleEndian(out, static_cast<uint32_t>(kAskKind));
  StoreLittleEndian(out + 4, messages);
  StoreLittleEndian<uint64_t>(out + 8, 0);
}

bool IsAsk(ConstBytes header) {
  return header.size > 0 && header.data[0] == kAskKind;
}

absl::StatusOr<uint32_t> ParseAsk(ConstBytes header, size_t payload_bytes) {
  if (!IsBare(header, payload_bytes) || !IsOfKind(header, kAskKind) ||
      LoadLittleEndian<uint64_t>(header.data + 8) != 0) {
    return absl::InvalidArgumentError("no question for what was received");
  }
  return LoadLittleEndian<uint32_t>(header.data + 4);
}

bool IsAck(ConstBytes header) {
  return header.size > 0 && header.data[0] == kAckKind;
}

absl::StatusOr<ReceivedSoFar> ParseAck(ConstBytes header,
                                       size_t payload_bytes) {
  if (!IsBare(header, payload_bytes) || !IsOfKind(header, kAckKind)) {
    return absl::InvalidArgumentError("no count of what was received");
  }
  return ReceivedSoFar{.messages = LoadLittleEndian<uint32_t>(header.data + 4),
                       .weight = LoadLittleEndian<uint64_t>(header.data + 8)};
}

absl::StatusOr<Hello> ParseHello(ConstBytes header, size_t payload_bytes) {
  if (!IsBare(header, payload_bytes) || header.data[0] != kHelloKind) {
    return absl::InvalidArgumentError(
        "no hello of one connection of several; do both sides have "
        "--connections above 1?");
  }
  const Hello hello = {.connection = static_cast<size_t>(header.data[1]),
                       .connections = static_cast<size_t>(header.data[2]),
                       .group = LoadLittleEndian<uint64_t>(header.data + 8)};
  if (header.data[3] != kVersion ||
      LoadLittleEndian<uint32_t>(header.data + 4) != 0 ||
      hello.connections > kMaxConnections ||
      hello.connection >= hello.connections) {
    return absl::InvalidArgumentError(absl::StrCat(
        "hello of version ", static_cast<int>(header.data[3]), ", connection ",
        hello.connection, " of ", hello.connections));
  }
  return hello;
}

absl::StatusOr<Part> ParsePart(ConstBytes header, size_t part_bytes) {
  if (header.size > kMaxCarriedBytes || !IsOfKind(header, kPartKind)) {
    return absl::InvalidArgumentError("no part of a message");
  }
  const size_t offset = LoadLittleEndian<uint32_t>(header.data + 12);
  const Part part = {
      .sequence = LoadLittleEndian<uint32_t>(header.data + 4),
      .payload_bytes = LoadLittleEndian<uint32_t>(header.data + 8),
      .index = offset / kPartBytes};
  if (part.payload_bytes > kMaxPayloadBytes || offset % kPartBytes != 0 ||
      part.index >= NumParts(part.payload_bytes) ||
      part_bytes != PartBytes(part.payload_bytes, part.index)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a part of ", part_bytes, " bytes at ", offset,
                     " of a payload of ", part.payload_bytes));
  }
  return part;
}

}  // namespace telegrad::multirail
