#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace telegrad {

// SHA-256 in hexadecimal digits.
std::string Sha256OfFloats(
    const std::vector<std::pair<const float*, size_t>>& tensors);
std::string Sha256OfBytes(absl::string_view bytes);

}  // namespace telegrad
