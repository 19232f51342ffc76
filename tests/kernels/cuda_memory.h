#pragma once

#include <cstddef>

namespace telegrad::kernels::testing {

// Memory that both the host and the GPU can use; null without CUDA.
void* AllocateManaged(size_t size);
void FreeManaged(void* memory);
// Memory that only the GPU can use; null without CUDA.
void* AllocateOnGpu(size_t size);
void FreeOnGpu(void* memory);
void CopyFromGpu(void* to, const void* from, size_t size);
void CopyToGpu(void* to, const void* from, size_t size);
// Threads of the largest grid of our kernels; 0 without CUDA.
size_t GpuThreads();
// Waits for the GPU; what went wrong there, or "".
const char* WaitForGpu();

}  // namespace telegrad::kernels::testing
