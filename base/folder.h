#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace telegrad {

// Makes the folder that `flag` names, and those above it, where they are
// absent. InvalidArgument: it cannot be made, or nothing can be written there.
absl::Status MakeFolder(absl::string_view flag, const std::string& directory);

}  // namespace telegrad
