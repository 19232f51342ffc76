#pragma once

#include <bit>
#include <cstddef>
#include <cstring>
#include <string>
#include <type_traits>

namespace telegrad {

static_assert(std::endian::native == std::endian::little,
              "the wire is little-endian; a big-endian port swaps here");

// Unaligned little-endian access to wire bytes; the caller has checked the
// length.
template <typename T>
T LoadLittleEndian(const std::byte* from) {
  static_assert(std::is_trivially_copyable_v<T>);
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <typename T>
void StoreLittleEndian(std::byte* to, T value) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::memcpy(to, &value, sizeof(T));
}

template <typename T>
void AppendLittleEndian(std::string* to, T value) {
  char bytes[sizeof(T)];
  StoreLittleEndian(reinterpret_cast<std::byte*>(bytes), value);
  to->append(bytes, sizeof(T));
}

}  // namespace telegrad
