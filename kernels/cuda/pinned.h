#pragma once

#include <cstddef>

namespace telegrad::kernels::cuda {

// Pages of mmap, zero-filled, that all devices reach by themselves; null, with
// the reason in cudaGetLastError, where that fails. They lie on this NUMA node
// where there is room; -1: where the thread is. Not cudaHostAlloc's: the
// driver's mappings cannot be read by process_vm_readv, nor be registered for
// RDMA on all systems.
std::byte* MapPinned(size_t size, int numa_node = -1);
void UnmapPinned(std::byte* memory, size_t size);

}  // namespace telegrad::kernels::cuda
