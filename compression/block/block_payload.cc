#include "compression/block/block_payload.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compression/shape_checks.h"
#include "kernels/block_rules.h"
#include "kernels/block_runs.h"

namespace telegrad {
namespace {

// Whether some field of `bits` in the bytes is -2^(bits-1).
bool HasMostNegative(const uint8_t* codes, size_t num_bytes, uint32_t bits) {
  // The bits below each field's sign.
  const uint32_t low = bits == 8 ? 0x7F : bits == 4 ? 0x77 : 0x55;
  uint32_t wrong = 0;
  for (size_t i = 0; i < num_bytes; ++i) {
    const uint32_t byte = codes[i];
    wrong |= byte & ~((byte & low) + low) & ~low;
  }
  return (wrong & 0xFF) != 0;
}

bool ExceedsLevels(const uint8_t* codes, size_t n, uint32_t bits,
                   int32_t levels) {
  int32_t most = 0;
  for (size_t i = 0; i < n; ++i) {
    const int32_t code = kernels::UnpackCode(codes, i, bits);
    most = std::max(most, code < 0 ? -code : code);
  }
  return most > levels;
}

// The least and the largest scale of a block that has one.
struct ScaleRange {
  float least;
  float most;
};
ScaleRange RangeOf(const kernels::BlockFormat& format) {
  constexpr float kMost = kernels::kMostMaximum;
  const auto scale_of = [&format](float square, float maximum) {
    return format.odd ? kernels::OddScaleOf(square, 1, format).scale
                      : kernels::ScaleOf(maximum, kMost, format).scale;
  };
  return {scale_of(kernels::kLeastMeanSquare, kernels::kLeastMaximum),
          scale_of(kernels::kMostSquare, kMost)};
}

// A block whose scale is 0 has no codes other than 0; it begins at a byte.
absl::Status CheckBlock(const uint8_t* codes, size_t num_bytes, float scale,
                        size_t block, const ScaleRange& range) {
  const bool is_scale = std::bit_cast<uint32_t>(scale) == 0 ||
                        (scale >= range.least && scale <= range.most);
  if (!is_scale) {  // or NaN
    return absl::InvalidArgumentError(
        absl::StrCat("payload's scale ", block, " is ", scale));
  }
  if (scale != 0 || std::all_of(codes, codes + num_bytes,
                                [](uint8_t byte) { return byte == 0; })) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("payload's block ", block, " has codes without a scale"));
}

}  // namespace

absl::Status CheckCodes(const uint8_t* codes, size_t n, uint32_t bits,
                        uint32_t levels) {
  const size_t num_bytes = kernels::CodeBytes(n, bits);
  const uint32_t most = (1u << (bits - 1)) - 1;
  if (levels <= most &&
      (levels == most
           ? HasMostNegative(codes, num_bytes, bits)
           : ExceedsLevels(codes, n, bits, static_cast<int32_t>(levels)))) {
    return absl::InvalidArgumentError(
        absl::StrCat("payload holds a code that is not within ", levels));
  }
  const size_t used = n % 8 * bits % 8;
  if (used != 0 && codes[num_bytes - 1] >> used != 0) {
    return absl::InvalidArgumentError("payload holds codes behind its end");
  }
  return absl::OkStatus();
}

absl::Status CheckBlockPayload(ConstBytes payload, size_t n,
                               const kernels::BlockFormat& format) {
  RETURN_IF_ERROR(CheckSize("payload", payload.size,
                            kernels::BlockPayloadBytes(n, format)));
  const auto* bytes = reinterpret_cast<const uint8_t*>(payload.data);
  const uint8_t* codes = bytes + kernels::ScaleBytes(n, format);
  const ScaleRange range = RangeOf(format);
  for (size_t from = 0; from < n; from += format.block) {
    const size_t block = from / format.block;
    const float scale = kernels::reference::BlockScaleAt(bytes, block, format);
    const size_t count = std::min(format.block, n - from);
    RETURN_IF_ERROR(CheckBlock(codes + kernels::CodeBytes(from, format.bits),
                               kernels::CodeBytes(count, format.bits), scale,
                               block, range));
  }
  return CheckCodes(codes, n, format.bits, format.levels);
}

}  // namespace telegrad
