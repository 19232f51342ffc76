#include "transport/tcp/wire.h"

#include <algorithm>
#include <array>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/endian.h"
#include "transport/transport.h"

namespace telegrad::tcp {
namespace {

bool IsWithinLimits(const Record& record, bool is_local,
                    size_t max_header_bytes) {
  const bool is_bare = record.header_bytes == 0 && record.payload_bytes == 0;
  switch (record.kind) {
    case Kind::kHello:
      return false;  // only once, and first
    case Kind::kMessage:
      return record.header_bytes <= max_header_bytes &&
             record.payload_bytes <= kMaxPayloadBytes;
    case Kind::kGoodbye:
      return is_bare;
    case Kind::kOffer:
      return is_local && record.header_bytes == kOfferBytes &&
             record.payload_bytes == 0;
    case Kind::kExposed:
      return is_local && record.header_bytes >= kPlaceBytes &&
             record.header_bytes <= kPlaceBytes + max_header_bytes &&
             record.payload_bytes <= kMaxPayloadBytes;
    case Kind::kAccept:
    case Kind::kTaken:
      return is_local && is_bare;
  }
  return false;
}

}  // namespace

void PackRecord(const Record& record, std::byte* out) {
  out[0] = static_cast<std::byte>(record.kind);
  out[1] = static_cast<std::byte>(record.header_bytes);
  StoreLittleEndian<uint16_t>(out + 2, 0);
  StoreLittleEndian(out + 4, static_cast<uint32_t>(record.payload_bytes));
}

bool IsHello(const std::byte* bytes) {
  std::array<std::byte, kRecordBytes> hello;
  PackRecord(kHelloRecord, hello.data());
  return std::equal(hello.begin(), hello.end(), bytes);
}

absl::StatusOr<Record> ParseRecord(const std::byte* bytes, bool is_local,
                                   size_t max_header_bytes) {
  const Record record = {
      .kind = static_cast<Kind>(bytes[0]),
      .header_bytes = static_cast<size_t>(bytes[1]),
      .payload_bytes = LoadLittleEndian<uint32_t>(bytes + 4)};
  if (LoadLittleEndian<uint16_t>(bytes + 2) != 0 ||
      !IsWithinLimits(record, is_local, max_header_bytes)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a record of kind ", static_cast<int>(record.kind),
                     ", header ", record.header_bytes, " bytes, payload ",
                     record.payload_bytes, " bytes"));
  }
  return record;
}

void PackOffer(const Mark* mark, std::byte* out) {
  StoreLittleEndian(out, reinterpret_cast<uint64_t>(mark));
  StoreLittleEndian(out + kPlaceBytes, mark->process);
  StoreLittleEndian(out + kPlaceBytes + 8, mark->secret);
}

Offer UnpackOffer(const std::byte* bytes) {
  return {.place = LoadLittleEndian<uint64_t>(bytes),
          .mark = {LoadLittleEndian<uint64_t>(bytes + kPlaceBytes),
                   LoadLittleEndian<uint64_t>(bytes + kPlaceBytes + 8)}};
}

}  // namespace telegrad::tcp
