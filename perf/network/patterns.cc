#include "perf/network/patterns.h"

#include <bit>

#include "absl/strings/str_cat.h"

namespace telegrad::perf {
namespace {

std::byte ByteAt(uint32_t seed, size_t i) {
  return static_cast<std::byte>((i * 2654435761u + seed * 40503u) >> 9);
}

// -8 to 8, spread like 16 tosses of a coin: nearly normal, of RMS 2, so that an
// automatic threshold (a power of two) is to the RMS as that of a calibration's
// normal gradients. Neighbours are independent of each other (the finaliser of
// MurmurHash3).
float GradientAt(int worker, size_t i) {
  uint64_t hash = i + (static_cast<uint64_t>(worker) << 48);
  hash = (hash ^ hash >> 33) * 0xff51afd7ed558ccd;
  hash = (hash ^ hash >> 33) * 0xc4ceb9fe1a85ec53;
  return static_cast<float>(std::popcount(hash >> 48)) - 8.0f;
}

}  // namespace

void FillBytes(uint32_t seed, Bytes memory) {
  for (size_t i = 0; i < memory.size; ++i) memory.data[i] = ByteAt(seed, i);
}

absl::Status VerifyBytes(int rank, uint32_t seed, ConstBytes memory) {
  for (size_t i = 0; i < memory.size; ++i) {
    if (memory.data[i] == ByteAt(seed, i)) continue;
    return absl::DataLossError(
        absl::StrCat("check: rank ", rank, ": byte ", i, " of ", memory.size,
                     " is ", static_cast<int>(memory.data[i]), ", not ",
                     static_cast<int>(ByteAt(seed, i))));
  }
  return absl::OkStatus();
}

void FillGradient(int worker, size_t first, size_t n, float* gradient) {
  for (size_t i = 0; i < n; ++i) gradient[i] = GradientAt(worker, first + i);
}

}  // namespace telegrad::perf
