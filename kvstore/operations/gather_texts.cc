#include "kvstore/operations/gather_texts.h"

#include <cstdint>
#include <numeric>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/status_macros.h"

namespace telegrad::operations {

constexpr uint64_t kMaxTextBytes = uint64_t{64} << 10;

absl::StatusOr<std::vector<std::string>> GatherTexts(
    Group& group, const std::string& mine, const std::vector<size_t>& bytes) {
  ASSIGN_OR_RETURN(
      const Buffer all,
      Buffer::Create(std::accumulate(bytes.begin(), bytes.end(), size_t{0})));
  RETURN_IF_ERROR(
      group.Allgatherv(mine.data(), all.data(), bytes, Dtype::kUint8));
  std::vector<std::string> texts;
  const char* at = all.as<char>();
  for (const size_t size : bytes) {
    texts.emplace_back(at, size);
    at += size;
  }
  return texts;
}

absl::StatusOr<std::vector<std::string>> GatherTexts(Group& group,
                                                     const std::string& mine) {
  const auto size = static_cast<int64_t>(mine.size());
  std::vector<int64_t> sizes(static_cast<size_t>(group.world_size()));
  RETURN_IF_ERROR(group.Allgather(&size, sizes.data(), 1, Dtype::kInt64));
  std::vector<size_t> bytes;
  for (size_t rank = 0; rank < sizes.size(); ++rank) {
    bytes.push_back(static_cast<size_t>(sizes[rank]));
    if (bytes.back() <= kMaxTextBytes) continue;
    return absl::DataLossError(absl::StrCat("rank ", rank, " says a text of ",
                                            sizes[rank], " bytes; at most ",
                                            kMaxTextBytes));
  }
  if (std::accumulate(bytes.begin(), bytes.end(), size_t{0}) == 0) {
    return std::vector<std::string>(bytes.size());
  }
  return GatherTexts(group, mine, bytes);
}

}  // namespace telegrad::operations
