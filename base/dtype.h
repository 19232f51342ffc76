#pragma once

#include <cstddef>
#include <cstdint>

namespace telegrad {

// Type of a tensor's elements. The values go on the wire.
enum class Dtype : uint8_t {
  kFloat32 = 0,
  kFloat16 = 1,
  kBfloat16 = 2,
  kInt32 = 3,
};

// 0 for a value that is none of them.
constexpr size_t SizeOf(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat32:
    case Dtype::kInt32:
      return 4;
    case Dtype::kFloat16:
    case Dtype::kBfloat16:
      return 2;
  }
  return 0;
}

// "float32"; "unknown" for a value that is none of them.
constexpr const char* ToString(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat32:
      return "float32";
    case Dtype::kFloat16:
      return "float16";
    case Dtype::kBfloat16:
      return "bfloat16";
    case Dtype::kInt32:
      return "int32";
  }
  return "unknown";
}

}  // namespace telegrad
