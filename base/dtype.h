#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace telegrad {

// Type of a tensor's elements. The values go on the wire. Groups take all,
// stores the first three.
enum class Dtype : uint8_t {
  kFloat32 = 0,
  kFloat16 = 1,
  kBfloat16 = 2,
  kInt32 = 3,
  kInt64 = 4,
  kFloat64 = 5,
  kUint8 = 6,
  kInt8 = 7,
  kBool = 8,  // one byte: 0 is false
};

struct DtypeFacts {
  const char* name;
  size_t bytes;
};
constexpr std::array kDtypes = {
    DtypeFacts{"float32", 4},  DtypeFacts{"float16", 2},
    DtypeFacts{"bfloat16", 2}, DtypeFacts{"int32", 4},
    DtypeFacts{"int64", 8},    DtypeFacts{"float64", 8},
    DtypeFacts{"uint8", 1},    DtypeFacts{"int8", 1},
    DtypeFacts{"bool", 1}};

// 0 bytes and "unknown" for a value that is none of them.
constexpr DtypeFacts FactsOf(Dtype dtype) {
  const auto value = static_cast<size_t>(dtype);
  return value < kDtypes.size() ? kDtypes[value] : DtypeFacts{"unknown", 0};
}
constexpr size_t SizeOf(Dtype dtype) { return FactsOf(dtype).bytes; }
constexpr const char* ToString(Dtype dtype) { return FactsOf(dtype).name; }

}  // namespace telegrad
