#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace telegrad {

// What a fuzz target reads: the input itself, or a good text with what the
// input changes in it. Random bytes alone never get past the first character
// of JSON or of an image.
inline std::string EditedOrRaw(std::string good, const uint8_t* data,
                               size_t size) {
  if (size == 0) return good;
  if (data[0] % 8 == 0) {
    return {reinterpret_cast<const char*>(data) + 1, size - 1};
  }
  for (size_t i = 1; i + 4 <= size && i <= 64 && !good.empty(); i += 4) {
    const size_t at = (data[i] | size_t{data[i + 1]} << 8) % good.size();
    const auto byte = static_cast<char>(data[i + 3]);
    switch (data[i + 2] % 4) {
      case 0:
        good[at] = byte;
        break;
      case 1:
        good.insert(at, 1, byte);
        break;
      case 2:
        good.erase(at, data[i + 3] % 40);
        break;
      default:
        good.insert(at, good.substr(at, data[i + 3] % 40));
    }
  }
  return good;
}

}  // namespace telegrad
