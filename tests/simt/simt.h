#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>

// Runs CUDA kernels on the CPU: each thread of a block is a fiber, blocks run
// on several threads of the system. For tests; kernels are compiled by
// tests/simt/include/cuda_runtime.h.
//
// A fault of a kernel ends the process with a message: threads that wait at
// __syncthreads or a warp's operation for others that never come, different
// operations at once in a warp, too much shared memory. Shared memory is
// garbage at first. Threads take turns in an order that changes from launch to
// launch, only where they wait for each other; blocks begin in any order.
// Whole warps only: masks other than 0xFFFFFFFF are refused.
namespace telegrad::simt {

struct Shape {
  unsigned blocks;
  unsigned threads;  // of a block
  size_t dynamic_shared_bytes;
};

// Before a launch of the kernel at this address.
void NoteKernel(const void* kernel);

// Queues `kernel`, which runs once for each thread. A launch that a device
// would refuse is cudaGetLastError's.
void Launch(const Shape& shape, cudaStream_t stream,
            std::function<void()> kernel);

// Runs it now, with the memory of `device`.
void Run(const Shape& shape, int device, const std::function<void()>& kernel);

constexpr unsigned kMostThreads = 1024;  // of a block

// For the threads of a running kernel:

void SyncBlock();

// Waits for all lanes of the warp at the same operation; what each gave, until
// this lane's next operation.
const uint64_t* GatherWarp(const char* operation, unsigned mask,
                           uint64_t value);

// The block's variable of that place, made by the first thread that asks.
void* SharedMemory(const void* place, size_t size);

// Prints what is wrong and where in the grid, and ends the process.
[[noreturn]] void Fail(const char* format, ...)
    __attribute__((format(printf, 1, 2)));

}  // namespace telegrad::simt
