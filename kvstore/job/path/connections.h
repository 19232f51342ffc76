#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace telegrad {

// "auto" (kAutoConnections), or a number of 1 to kMaxConnections;
// InvalidArgument for all else.
absl::StatusOr<size_t> ParseConnections(absl::string_view text);
// What is wrong with it, for a command line; empty: nothing.
std::string CheckConnections(const std::string& text);

}  // namespace telegrad
