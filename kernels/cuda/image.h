#pragma once

#include <cuda_runtime_api.h>

namespace telegrad::kernels::cuda {

// Whether the current device can run what was compiled.
cudaError_t TryImage();

}  // namespace telegrad::kernels::cuda
