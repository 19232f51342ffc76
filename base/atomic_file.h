#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace telegrad {

// Replaces `path` by `content` in one step: readers see the old file or the new
// one. Nothing else is left in the directory, also after an error.
absl::Status WriteFileAtomically(const std::string& path,
                                 absl::string_view content);

}  // namespace telegrad
