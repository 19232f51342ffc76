#include "transport/decorators/resend/wire.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/crc32c.h"
#include "base/endian.h"

namespace telegrad::resend {
namespace {

constexpr size_t kCrcOffset = 12;
constexpr int kVersion = 1;

uint32_t HeaderCrc(const std::byte* prefix, ConstBytes header) {
  return Crc32c(header.data, header.size, Crc32c(prefix, kCrcOffset));
}

bool IsKind(Kind kind) {
  return kind == Kind::kMessage || kind == Kind::kEnd || kind == Kind::kTaken ||
         kind == Kind::kAgain;
}

}  // namespace

void PackPrefix(const Prefix& prefix, ConstBytes header, std::byte* out) {
  out[0] = static_cast<std::byte>(prefix.kind);
  out[1] = std::byte{kVersion};
  out[2] = out[3] = std::byte{0};
  StoreLittleEndian(out + 4, prefix.sequence);
  StoreLittleEndian(out + 8, prefix.body);
  StoreLittleEndian(out + kCrcOffset, HeaderCrc(out, header));
}

absl::StatusOr<Prefix> ParsePrefix(ConstBytes header, size_t payload_bytes) {
  if (header.size < kPrefixBytes || header.size > kMaxCarriedBytes) {
    return absl::DataLossError(
        absl::StrCat("a header of ", header.size, " bytes"));
  }
  const ConstBytes rest(header.data + kPrefixBytes, header.size - kPrefixBytes);
  if (LoadLittleEndian<uint32_t>(header.data + kCrcOffset) !=
      HeaderCrc(header.data, rest)) {
    return absl::DataLossError("a header's CRC is wrong");
  }
  const Prefix prefix = {
      .kind = static_cast<Kind>(header.data[0]),
      .sequence = LoadLittleEndian<uint32_t>(header.data + 4),
      .body = LoadLittleEndian<uint32_t>(header.data + 8)};
  const int version = static_cast<int>(header.data[1]);
  const bool is_bare = rest.size == 0 && payload_bytes == 0;
  if (version != kVersion || LoadLittleEndian<uint16_t>(header.data + 2) != 0 ||
      !IsKind(prefix.kind) || (prefix.kind != Kind::kMessage && !is_bare)) {
    return absl::InvalidArgumentError(
        absl::StrCat("resend: version ", version, " (ours: ", kVersion,
                     "), kind ", static_cast<int>(prefix.kind), ", ", rest.size,
                     " and ", payload_bytes, " bytes"));
  }
  return prefix;
}

}  // namespace telegrad::resend
