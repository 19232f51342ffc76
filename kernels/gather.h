#pragma once

#include <cstddef>

#include "base/device.h"
#include "base/stream.h"

// What the store asks of memory that the host cannot look at.
namespace telegrad::kernels {

// to [size] bytes = 0.
using ClearFn = void(size_t size, void* to, Stream stream);

// out [ceil(n / stride)] = x[0], x[stride], x[2 * stride] and so on. Alias: no.
using SampleFn = void(const float* x, size_t n, size_t stride, float* out,
                      Stream stream);

struct GatherKernels {
  ClearFn* clear = nullptr;
  SampleFn* sample = nullptr;
};

// Of a device of which there are kernels (dispatch.h).
const GatherKernels& GatherKernelsOf(DeviceKind kind);

}  // namespace telegrad::kernels
