#include "transport/staged/piece.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/endian.h"

namespace telegrad::staged {
namespace {

constexpr std::byte kPieceKind{'S'};
constexpr std::byte kVersion{1};

}  // namespace

PieceHeader PackPiece(const Whole& message, size_t offset) {
  PieceHeader out = {};
  out[0] = kPieceKind;
  out[1] = kVersion;
  StoreLittleEndian(&out[2], static_cast<uint16_t>(message.header_bytes));
  StoreLittleEndian(&out[4], static_cast<uint32_t>(message.payload_bytes));
  StoreLittleEndian(&out[8], static_cast<uint32_t>(offset));
  std::copy_n(message.header.data(), message.header_bytes,
              &out[kPiecePrefixBytes]);
  return out;
}

absl::StatusOr<Whole> ParsePiece(ConstBytes header, size_t piece_bytes) {
  if (header.size != kPieceHeaderBytes || header.data[0] != kPieceKind ||
      header.data[1] != kVersion ||
      LoadLittleEndian<uint32_t>(header.data + 12) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a header of ", header.size, " bytes, and no piece of a message"));
  }
  Whole piece;
  piece.header_bytes = LoadLittleEndian<uint16_t>(header.data + 2);
  piece.payload_bytes = LoadLittleEndian<uint32_t>(header.data + 4);
  piece.begun = LoadLittleEndian<uint32_t>(header.data + 8) + piece_bytes;
  if (piece.header_bytes > kMaxHeaderBytes ||
      piece.payload_bytes > kMaxPayloadBytes || piece_bytes == 0 ||
      piece.begun > piece.payload_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a piece of ", piece_bytes, " bytes up to ", piece.begun,
                     " of a payload of ", piece.payload_bytes));
  }
  std::copy_n(header.data + kPiecePrefixBytes, piece.header_bytes,
              piece.header.data());
  return piece;
}

absl::Status CheckFirst(const Whole& piece, size_t piece_bytes) {
  if (piece.begun == piece_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a piece at ", piece.begun - piece_bytes,
                   " of a message that has not begun"));
}

absl::Status AddPiece(const Whole& piece, size_t piece_bytes, Whole* message) {
  if (piece.begun - piece_bytes != message->begun ||
      piece.payload_bytes != message->payload_bytes ||
      piece.header_bytes != message->header_bytes ||
      piece.header != message->header) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a piece at ", piece.begun - piece_bytes, " of ", piece.payload_bytes,
        " bytes where that at ", message->begun, " of ", message->payload_bytes,
        " is due"));
  }
  message->begun = piece.begun;
  return absl::OkStatus();
}

absl::Status CheckWhole(const Whole& message) {
  if (message.is_whole()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a message within another, of which ", message.begun, " of ",
                   message.payload_bytes, " bytes have begun"));
}

}  // namespace telegrad::staged
