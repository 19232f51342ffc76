#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kvstore/collective/collective.h"

namespace telegrad::operations {

// All ranks' texts, by rank, of which `bytes` are the sizes.
absl::StatusOr<std::vector<std::string>> GatherTexts(
    Group& group, const std::string& mine, const std::vector<size_t>& bytes);
// Texts of up to 64 KiB.
absl::StatusOr<std::vector<std::string>> GatherTexts(Group& group,
                                                     const std::string& mine);

}  // namespace telegrad::operations
