#include "kvstore/operations/scale.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "kernels/dispatch.h"

namespace telegrad::operations {
namespace {

const kernels::CastFormatKernels& CastOf(Dtype type) {
  const kernels::CastKernels& cast = kernels::CpuKernels().cast;
  return type == Dtype::kFloat16 ? cast.fp16 : cast.bf16;
}

// A whole number is the nearest one towards 0 that there is.
template <typename T, typename Wide>
T Cut(Wide value) {
  using Limits = std::numeric_limits<T>;
  if constexpr (Limits::is_integer) {
    if (std::isnan(value)) return 0;
    if (value >= static_cast<Wide>(Limits::max())) return Limits::max();
    if (value <= static_cast<Wide>(Limits::min())) return Limits::min();
  }
  return static_cast<T>(value);
}

template <typename T>
void ScaleAll(double factor, size_t count, void* data) {
  using Wide = std::conditional_t<std::is_same_v<T, float>, float, double>;
  T* const values = static_cast<T*>(data);
  const auto by = static_cast<Wide>(factor);
  for (size_t i = 0; i < count; ++i) {
    values[i] = Cut<T>(static_cast<Wide>(values[i]) * by);
  }
}

}  // namespace

std::vector<float> Widen(Dtype type, const void* from, size_t count) {
  std::vector<float> wide(count);
  CastOf(type).decode(static_cast<const uint8_t*>(from), count, wide.data(),
                      {});
  return wide;
}

void Narrow(Dtype type, const std::vector<float>& wide, void* to) {
  kernels::EncodeStats stats;
  CastOf(type).encode(wide.data(), nullptr, wide.size(),
                      kernels::NonFinite::kPropagate, static_cast<uint8_t*>(to),
                      &stats, {});
}

void Scale(Dtype type, double factor, size_t count, void* data) {
  if (factor == 1) return;
  switch (type) {
    case Dtype::kFloat32:
      return ScaleAll<float>(factor, count, data);
    case Dtype::kFloat64:
      return ScaleAll<double>(factor, count, data);
    case Dtype::kInt32:
      return ScaleAll<int32_t>(factor, count, data);
    case Dtype::kInt64:
      return ScaleAll<int64_t>(factor, count, data);
    case Dtype::kInt8:
      return ScaleAll<int8_t>(factor, count, data);
    case Dtype::kUint8:
      return ScaleAll<uint8_t>(factor, count, data);
    case Dtype::kFloat16:
    case Dtype::kBfloat16: {
      constexpr size_t kBlock = 4096;
      auto* const bytes = static_cast<uint8_t*>(data);
      for (size_t i = 0; i < count; i += kBlock) {
        std::vector<float> wide =
            Widen(type, bytes + 2 * i, std::min(kBlock, count - i));
        ScaleAll<float>(factor, wide.size(), wide.data());
        Narrow(type, wide, bytes + 2 * i);
      }
      return;
    }
    case Dtype::kBool:
      return;
  }
}

}  // namespace telegrad::operations
