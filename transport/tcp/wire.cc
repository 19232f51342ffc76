#include "transport/tcp/wire.h"

#include <algorithm>
#include <array>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/endian.h"
#include "transport/transport.h"

namespace telegrad::tcp {
namespace {

constexpr std::array<unsigned char, kRecordBytes> kHello = {'T', 1,   0,   0,
                                                            'G', 'R', 'A', 'D'};

}  // namespace

void PackRecord(const Record& record, std::byte* out) {
  out[0] = static_cast<std::byte>(record.kind);
  out[1] = static_cast<std::byte>(record.header_bytes);
  StoreLittleEndian<uint16_t>(out + 2, 0);
  StoreLittleEndian(out + 4, static_cast<uint32_t>(record.payload_bytes));
}

void PackHello(std::byte* out) {
  std::transform(kHello.begin(), kHello.end(), out,
                 [](unsigned char c) { return std::byte{c}; });
}

bool IsHello(const std::byte* bytes) {
  return std::equal(
      kHello.begin(), kHello.end(), bytes,
      [](unsigned char c, std::byte b) { return std::byte{c} == b; });
}

absl::StatusOr<Record> ParseRecord(const std::byte* bytes) {
  const Record record = {
      .kind = static_cast<Kind>(bytes[0]),
      .header_bytes = static_cast<size_t>(bytes[1]),
      .payload_bytes = LoadLittleEndian<uint32_t>(bytes + 4)};
  const bool is_known = record.kind == Kind::kMessage ||
                        (record.kind == Kind::kGoodbye &&
                         record.header_bytes == 0 && record.payload_bytes == 0);
  if (!is_known || LoadLittleEndian<uint16_t>(bytes + 2) != 0 ||
      record.header_bytes > kMaxHeaderBytes ||
      record.payload_bytes > kMaxPayloadBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a record of kind ", static_cast<int>(record.kind),
                     ", header ", record.header_bytes, " bytes, payload ",
                     record.payload_bytes, " bytes"));
  }
  return record;
}

}  // namespace telegrad::tcp
