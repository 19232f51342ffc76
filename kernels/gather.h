#pragma once

#include <cstddef>
#include <cstdint>

#include "base/device.h"
#include "base/stream.h"

// What the store asks of memory that the host cannot look at.
namespace telegrad::kernels {

// to [size] bytes = 0.
using ClearFn = void(size_t size, void* to, Stream stream);

// out [ceil(n / stride)] = x[0], x[stride], x[2 * stride] and so on. Alias: no.
using SampleFn = void(const float* x, size_t n, size_t stride, float* out,
                      Stream stream);

// to [count] = from[0], from[stride], from[2 * stride] and so on. Alias: no.
struct GatherSpan {
  const float* from = nullptr;
  float* to = nullptr;
  uint64_t count = 0;
  uint64_t stride = 1;
};

// All spans in one launch; `spans` is the device's.
using GatherManyFn = void(const GatherSpan* spans, uint32_t num_spans,
                          Stream stream);

struct GatherKernels {
  ClearFn* clear = nullptr;
  SampleFn* sample = nullptr;
  GatherManyFn* gather_many = nullptr;
};

// The kernels of a device for which there are some (dispatch.h).
const GatherKernels& GatherKernelsOf(DeviceKind kind);

}  // namespace telegrad::kernels
