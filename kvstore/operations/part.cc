#include "kvstore/operations/part.h"

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/status_macros.h"

namespace telegrad::operations {
namespace {

constexpr int32_t kMaxAddressBytes = 1 << 20;

absl::StatusOr<std::vector<std::string>> GatherAddresses(
    Group& world, const std::string& mine) {
  const auto size = static_cast<int32_t>(mine.size());
  std::vector<int32_t> sizes(static_cast<size_t>(world.world_size()));
  RETURN_IF_ERROR(world.Allgather(&size, sizes.data(), 1, Dtype::kInt32));
  for (const int32_t other : sizes) {
    if (other < 0 || other > kMaxAddressBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("an address of ", other, " bytes"));
    }
  }
  return GatherTexts(world, mine, {sizes.begin(), sizes.end()});
}

}  // namespace

absl::StatusOr<std::vector<std::string>> GatherTexts(
    Group& world, const std::string& mine, const std::vector<size_t>& bytes) {
  ASSIGN_OR_RETURN(
      const Buffer all,
      Buffer::Create(std::accumulate(bytes.begin(), bytes.end(), size_t{0})));
  RETURN_IF_ERROR(
      world.Allgatherv(mine.data(), all.data(), bytes, Dtype::kUint8));
  std::vector<std::string> texts;
  const char* at = all.as<char>();
  for (const size_t size : bytes) {
    texts.emplace_back(at, size);
    at += size;
  }
  return texts;
}

absl::StatusOr<std::unique_ptr<Group>> MakePart(Group& world,
                                                GroupOptions options,
                                                const std::vector<int>& ranks) {
  const auto place = std::find(ranks.begin(), ranks.end(), world.rank());
  if (place == ranks.end()) {
    RETURN_IF_ERROR(GatherAddresses(world, "").status());
    return nullptr;
  }
  options.rank = static_cast<int>(place - ranks.begin());
  options.world_size = static_cast<int>(ranks.size());
  return Group::Make(
      options,
      [&](const std::string& mine,
          TimePoint) -> absl::StatusOr<std::vector<std::string>> {
        ASSIGN_OR_RETURN(const std::vector<std::string> all,
                         GatherAddresses(world, mine));
        std::vector<std::string> texts;
        for (const int rank : ranks) {
          texts.push_back(all[static_cast<size_t>(rank)]);
        }
        return texts;
      });
}

}  // namespace telegrad::operations
