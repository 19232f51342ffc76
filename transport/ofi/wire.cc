#include "transport/ofi/wire.h"

#include <algorithm>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/endian.h"
#include "transport/transport.h"

namespace telegrad::ofi {
namespace {

constexpr uint32_t kMagic = 0x49464F54;  // "TOFI"
constexpr uint16_t kHelloVersion = 3;
constexpr uint8_t kRecordVersion = 2;

// Whether header, payload and data are what this kind has.
bool IsConsistent(const Record& record) {
  const bool is_first = record.offset == 0;
  switch (record.kind) {
    case Kind::kData:
      return (is_first || record.header.size == 0) &&
             record.offset <= record.payload_bytes &&
             record.data.size <= record.payload_bytes - record.offset &&
             // Each brings something, so that none can be sent for ever.
             (record.data.size > 0 || record.payload_bytes == 0);
    case Kind::kLarge:
      return is_first && record.payload_bytes > 0 &&
             (record.data.size == 0 || record.data.size == kPlaceBytes);
    case Kind::kOffer:
    case Kind::kAccept:
      return is_first && record.payload_bytes + record.data.size == 0;
    case Kind::kGoodbye:
    case Kind::kGoodbyeAck:
    case Kind::kTaken:
      return is_first &&
             record.payload_bytes + record.data.size + record.header.size == 0;
  }
  return false;  // no such kind
}

std::byte* Raw(std::string* text) {
  return reinterpret_cast<std::byte*>(text->data());
}

}  // namespace

std::string PackHello(const Hello& hello) {
  const size_t size = kHelloBytes + hello.fabric.size() + hello.address.size();
  std::string text(kHelloBytes, '\0');
  std::byte* out = Raw(&text);
  StoreLittleEndian(out, kMagic);
  StoreLittleEndian(out + 4, kHelloVersion);
  StoreLittleEndian(out + 6, static_cast<uint16_t>(size));
  StoreLittleEndian(out + 8, hello.endpoint);
  StoreLittleEndian(out + 16, hello.token);
  StoreLittleEndian(out + 24, static_cast<uint16_t>(hello.fabric.size()));
  StoreLittleEndian(out + 26, static_cast<uint16_t>(hello.address.size()));
  return text + hello.fabric + hello.address;
}

absl::StatusOr<std::optional<Hello>> ParseHello(absl::string_view received) {
  const auto* in = reinterpret_cast<const std::byte*>(received.data());
  // Whoever speaks something else is told apart by the first bytes.
  if (received.size() >= 8 &&
      (LoadLittleEndian<uint32_t>(in) != kMagic ||
       LoadLittleEndian<uint16_t>(in + 4) != kHelloVersion)) {
    return absl::InvalidArgumentError(
        absl::StrCat("not a hello of version ", kHelloVersion));
  }
  if (received.size() < kHelloBytes) return std::optional<Hello>();
  const size_t size = LoadLittleEndian<uint16_t>(in + 6);
  const size_t fabric_bytes = LoadLittleEndian<uint16_t>(in + 24);
  const size_t address_bytes = LoadLittleEndian<uint16_t>(in + 26);
  if (fabric_bytes > kMaxHelloText || address_bytes > kMaxHelloText ||
      size != kHelloBytes + fabric_bytes + address_bytes ||
      received.size() > size) {
    return absl::InvalidArgumentError(absl::StrCat(
        "hello of ", size, " bytes with texts of ", fabric_bytes, " and ",
        address_bytes, ", ", received.size(), " bytes were received"));
  }
  if (received.size() < size) return std::optional<Hello>();
  Hello hello;
  hello.endpoint = LoadLittleEndian<uint32_t>(in + 8);
  hello.token = LoadLittleEndian<uint64_t>(in + 16);
  hello.fabric = std::string(received.substr(kHelloBytes, fabric_bytes));
  hello.address = std::string(received.substr(kHelloBytes + fabric_bytes));
  return std::optional<Hello>(std::move(hello));
}

size_t PackRecord(const Record& record, std::byte* out) {
  StoreLittleEndian(out, record.token);
  StoreLittleEndian(out + 8, record.to);
  StoreLittleEndian(out + 12, record.sequence);
  StoreLittleEndian(out + 16, record.payload_bytes);
  StoreLittleEndian(out + 20, record.offset);
  StoreLittleEndian(out + 24, static_cast<uint16_t>(record.header.size));
  out[26] = static_cast<std::byte>(record.kind);
  out[27] = static_cast<std::byte>(kRecordVersion);
  StoreLittleEndian(out + 28, uint32_t{0});
  std::copy_n(record.header.data, record.header.size, out + kRecordBytes);
  return kRecordBytes + record.header.size;
}

std::optional<Record> ParseRecord(ConstBytes bytes, size_t max_header_bytes) {
  if (bytes.size < kRecordBytes) return std::nullopt;
  const std::byte* in = bytes.data;
  Record record;
  record.token = LoadLittleEndian<uint64_t>(in);
  record.to = LoadLittleEndian<uint32_t>(in + 8);
  record.sequence = LoadLittleEndian<uint32_t>(in + 12);
  record.payload_bytes = LoadLittleEndian<uint32_t>(in + 16);
  record.offset = LoadLittleEndian<uint32_t>(in + 20);
  const size_t header_bytes = LoadLittleEndian<uint16_t>(in + 24);
  record.kind = static_cast<Kind>(in[26]);
  if (in[27] != static_cast<std::byte>(kRecordVersion) ||
      header_bytes > max_header_bytes ||
      header_bytes > bytes.size - kRecordBytes ||
      record.payload_bytes > kMaxPayloadBytes) {
    return std::nullopt;
  }
  record.header = {in + kRecordBytes, header_bytes};
  record.data = {in + kRecordBytes + header_bytes,
                 bytes.size - kRecordBytes - header_bytes};
  if (!IsConsistent(record)) return std::nullopt;
  return record;
}

}  // namespace telegrad::ofi
