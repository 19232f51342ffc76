// libFuzzer: headers of frames, rows, codecs' texts and rules.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "compression/codec_spec.h"
#include "kvstore/engine/rows/rows.h"
#include "kvstore/ps/wire/wire.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using telegrad::ConstBytes;
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  (void)telegrad::ParseCodecSpec(text);
  (void)telegrad::ParseThreshold(text);
  // Rows 4 to 9, the first and the last in part.
  const telegrad::Chunk chunk = {.begin = 32, .num_elems = 32};
  float dense[32];
  (void)telegrad::SpreadRows(chunk, 7, ConstBytes(data, size), dense);
  const auto header = telegrad::ParseFrameHeader(ConstBytes(data, size));
  if (!header.ok()) return 0;
  // What was parsed is what would be written.
  if (header->payload_bytes != 0) return 0;
  const auto again = telegrad::SerializeFrame(*header, {});
  if (std::memcmp(again.data(), data, 52) != 0) std::abort();
  return 0;
}
