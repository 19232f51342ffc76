#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kvstore/collective/collective.h"

namespace telegrad::operations {

// All ranks' texts, of which `bytes` are the sizes, by rank.
absl::StatusOr<std::vector<std::string>> GatherTexts(
    Group& world, const std::string& mine, const std::vector<size_t>& bytes);

// A group of some ranks of `world`, all of which call it; `options` are those
// of `world`. In it ranks have their places in `ranks`. Null on the others.
absl::StatusOr<std::unique_ptr<Group>> MakePart(Group& world,
                                                GroupOptions options,
                                                const std::vector<int>& ranks);

}  // namespace telegrad::operations
