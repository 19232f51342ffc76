#include "kvstore/collective/arguments.h"

#include <cstdint>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/crc32c.h"
#include "base/status_macros.h"

namespace telegrad::collective {

absl::Status CheckMemory(const void* memory, size_t count, size_t blocks,
                         Dtype type) {
  const size_t size = SizeOf(type);
  if (count > std::numeric_limits<size_t>::max() / 2 / size / blocks) {
    return absl::InvalidArgumentError(
        absl::StrCat("count ", count, " is beyond any memory"));
  }
  if (count > 0 &&
      (memory == nullptr || reinterpret_cast<uintptr_t>(memory) % size != 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("memory of ", count, " ", ToString(type),
                     " is null or not aligned to ", size, " bytes"));
  }
  return absl::OkStatus();
}

absl::Status CheckRoot(int root, int world_size) {
  if (root >= 0 && root < world_size) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("broadcast: root ", root, " of ", world_size, " ranks"));
}

absl::Status CheckOwnBlock(size_t sent, size_t received) {
  if (sent == received) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("alltoallv: this rank sends itself ", sent,
                   " elements and expects ", received));
}

Signature WithCounts(Operation operation, std::span<const size_t> counts,
                     Dtype type) {
  Signature signature{.operation = operation, .type = type};
  for (const size_t count : counts) signature.count += count;
  // Never 0, which means equal blocks.
  signature.layout = Crc32c(counts.data(), counts.size_bytes()) | 1;
  return signature;
}

absl::StatusOr<std::vector<size_t>> BytesOf(const void* memory,
                                            std::span<const size_t> counts,
                                            int world_size, Dtype type) {
  if (counts.size() != static_cast<size_t>(world_size)) {
    return absl::InvalidArgumentError(
        absl::StrCat(counts.size(), " counts for ", world_size, " ranks"));
  }
  std::vector<size_t> bytes;
  for (const size_t count : counts) {
    RETURN_IF_ERROR(CheckMemory(memory, count, counts.size(), type));
    bytes.push_back(count * SizeOf(type));
  }
  return bytes;
}

}  // namespace telegrad::collective
