#pragma once

#include <cstddef>
#include <vector>

#include "base/bytes.h"
#include "base/tensor_view.h"
#include "kernels/dispatch.h"
#include "kvstore/engine/codec/floats.h"
#include "tests/kvstore/oracle.h"

// Tensors of tests with devices and of 16-bit floats, and what is in them.
namespace telegrad::testing {

inline constexpr size_t kElems = 100;

inline std::vector<std::byte> Rounded(const std::vector<float>& values,
                                      Dtype dtype) {
  std::vector<std::byte> bytes(SizeOf(dtype) * values.size());
  EncodeStats stats;
  Narrow(kernels::CpuKernels(), values.data(), values.size(),
         Bytes(bytes.data(), bytes.size()), dtype, &stats, {});
  return bytes;
}

inline TensorView ViewOf(const Buffer& buffer, Dtype dtype) {
  return {.bytes = buffer.view(),
          .dtype = dtype,
          .num_elems = static_cast<int64_t>(buffer.size() / SizeOf(dtype))};
}

// Not on a grid: what two of them add up to must be rounded.
inline std::vector<float> Gradient(int device, int step) {
  std::vector<float> grad(kElems);
  for (size_t i = 0; i < kElems; ++i) {
    grad[i] = GradOf(device, step, i) * (device == 0 ? 1.0f : 1.0f / 3);
  }
  return grad;
}

// As a store sees it.
inline std::vector<float> Widened(const std::vector<float>& values,
                                  Dtype dtype) {
  std::vector<float> floats(values.size());
  const std::vector<std::byte> bytes = Rounded(values, dtype);
  Widen(kernels::CpuKernels(), {bytes.data(), bytes.size()}, dtype,
        values.size(), floats.data(), {});
  return floats;
}

}  // namespace telegrad::testing
