#pragma once

#include <cstddef>

#include "base/bytes.h"
#include "base/stream.h"

namespace telegrad::kernels::cuda {

// KernelTable::make_buffer: from the device's own pool, which keeps what it
// once had, so that nothing waits for the device.
Buffer MakeDeviceBuffer(size_t size, int ordinal, Stream stream);

// DeviceQueue::MakeCardMemory.
Buffer MakeCardBuffer(size_t size, int ordinal);

// Before a stream ends, whose work has finished: its buffers live on.
void ForgetStream(int ordinal, Stream stream);

// DeviceQueue::MakePinned. An empty buffer, with the reason in
// cudaGetLastError, where that fails.
Buffer MakePinnedBuffer(size_t size, int numa_node);

}  // namespace telegrad::kernels::cuda
