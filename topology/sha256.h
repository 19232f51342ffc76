#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace telegrad {

// SHA-256 (FIPS 180-4) of `text`, 64 hexadecimal digits in lower case.
std::string Sha256Hex(absl::string_view text);

}  // namespace telegrad
