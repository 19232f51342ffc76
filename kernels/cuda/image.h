#pragma once

#include <cuda_runtime_api.h>

namespace telegrad::kernels::cuda {

// Whether the current device can run what was compiled.
cudaError_t TryImage();

// cudaGetLastError of the kernels' own runtime: a program that shares their
// library has another one.
cudaError_t LastKernelError();

}  // namespace telegrad::kernels::cuda
