#pragma once

#include <cstddef>

namespace telegrad {

// To wake another thread takes as long as to encode, check or add so much.
inline constexpr size_t kSmallJobBytes = size_t{16} << 10;

}  // namespace telegrad
