#include "transport/decorators/bounce/fragment.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/endian.h"

namespace telegrad::bounce {
namespace {

constexpr std::byte kFragmentKind{'S'};
constexpr std::byte kVersion{1};

}  // namespace

FragmentHeader PackFragment(const Whole& message, size_t offset) {
  FragmentHeader out = {};
  out[0] = kFragmentKind;
  out[1] = kVersion;
  StoreLittleEndian(&out[2], static_cast<uint16_t>(message.header_bytes));
  StoreLittleEndian(&out[4], static_cast<uint32_t>(message.payload_bytes));
  StoreLittleEndian(&out[8], static_cast<uint32_t>(offset));
  std::copy_n(message.header.data(), message.header_bytes,
              &out[kFragmentPrefixBytes]);
  return out;
}

absl::StatusOr<Whole> ParseFragment(ConstBytes header, size_t fragment_bytes) {
  if (header.size != kFragmentHeaderBytes || header.data[0] != kFragmentKind ||
      header.data[1] != kVersion ||
      LoadLittleEndian<uint32_t>(header.data + 12) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a header of ", header.size, " bytes, and no fragment of a message"));
  }
  Whole fragment;
  fragment.header_bytes = LoadLittleEndian<uint16_t>(header.data + 2);
  fragment.payload_bytes = LoadLittleEndian<uint32_t>(header.data + 4);
  fragment.begun = LoadLittleEndian<uint32_t>(header.data + 8) + fragment_bytes;
  if (fragment.header_bytes > kMaxHeaderBytes ||
      fragment.payload_bytes > kMaxPayloadBytes || fragment_bytes == 0 ||
      fragment.begun > fragment.payload_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a fragment of ", fragment_bytes, " bytes up to ", fragment.begun,
        " of a payload of ", fragment.payload_bytes));
  }
  std::copy_n(header.data + kFragmentPrefixBytes, fragment.header_bytes,
              fragment.header.data());
  return fragment;
}

absl::Status CheckFirst(const Whole& fragment, size_t fragment_bytes) {
  if (fragment.begun == fragment_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a fragment at ", fragment.begun - fragment_bytes,
                   " of a message that has not begun"));
}

absl::Status AddFragment(const Whole& fragment, size_t fragment_bytes,
                         Whole* message) {
  if (fragment.begun - fragment_bytes != message->begun ||
      fragment.payload_bytes != message->payload_bytes ||
      fragment.header_bytes != message->header_bytes ||
      fragment.header != message->header) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a fragment at ", fragment.begun - fragment_bytes, " of ",
        fragment.payload_bytes, " bytes where that at ", message->begun, " of ",
        message->payload_bytes, " is due"));
  }
  message->begun = fragment.begun;
  return absl::OkStatus();
}

absl::Status CheckWhole(const Whole& message) {
  if (message.is_whole()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a message within another, which is at ", message.begun,
                   " of ", message.payload_bytes, " bytes have begun"));
}

}  // namespace telegrad::bounce
