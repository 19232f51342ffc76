// libFuzzer: headers of frames and collectives, rows, codecs' texts and rules.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "compression/codec_spec.h"
#include "kvstore/collective/message.h"
#include "kvstore/engine/rows/rows.h"
#include "kvstore/ps/wire/wire.h"

namespace {

namespace collective = telegrad::collective;

// What a rank says is what it means; with the magic in front it gets further.
void SayAgain(telegrad::ConstBytes bytes) {
  if (bytes.size < collective::kHeaderBytes) return;
  std::array<std::byte, collective::kHeaderBytes> said = collective::Encode({});
  std::copy(bytes.data + 4, bytes.data + said.size(), said.begin() + 4);
  std::fill(said.begin() + 9, said.begin() + 12, std::byte{0});
  for (size_t i = 4; i < 9; ++i) said[i] &= std::byte{15};
  const auto header = collective::Decode({said.data(), said.size()});
  if (!header.ok()) return;
  if (collective::Encode(*header) != said) std::abort();
  if (telegrad::SizeOf(header->signature.type) == 0) std::abort();
  (void)collective::Describe(header->signature);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using telegrad::ConstBytes;
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  (void)telegrad::ParseCodecSpec(text);
  (void)telegrad::ParseThreshold(text);
  // Rows 4 to 9, the first and the last in part.
  const telegrad::Chunk chunk = {.begin = 32, .num_elems = 32};
  float dense[32];
  (void)telegrad::SpreadRows(chunk, 7, ConstBytes(data, size), dense);
  SayAgain(ConstBytes(data, size));
  const auto header = telegrad::ParseFrameHeader(ConstBytes(data, size));
  if (!header.ok()) return 0;
  // What was parsed is what would be written.
  if (header->payload_bytes != 0) return 0;
  const auto again = telegrad::SerializeFrame(*header, {});
  if (std::memcmp(again.data(), data, 52) != 0) std::abort();
  return 0;
}
