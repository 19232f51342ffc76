#include "kernels/cuda/pinned.h"

#include <cuda_runtime_api.h>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernels/cuda/current_device.h"

namespace telegrad::kernels::cuda {
namespace {

constexpr int kMostNodes = 1024;  // The most of Linux
constexpr int kNodesPerWord = 64;

// Pages that are not there yet come from that node. Where a sandbox forbids it
// they lie on that of the thread which registers them, as without it.
void Prefer(int node, void* memory, size_t size) {
  if (node < 0 || node >= kMostNodes) return;
  unsigned long nodes[kMostNodes / kNodesPerWord] = {};
  nodes[node / kNodesPerWord] = 1UL << (node % kNodesPerWord);
  syscall(SYS_mbind, memory, size, MPOL_PREFERRED, nodes,
          static_cast<unsigned long>(kMostNodes), 0U);
}

}  // namespace

std::byte* MapPinned(size_t size, int numa_node) {
  void* const memory = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  // Behind a fork the parent's next write would go to a copy of the page, and
  // the device would go on with the old one.
  madvise(memory, size, MADV_DONTFORK);
  Prefer(numa_node, memory, size);
  const CurrentDevice current(UsedDevice());
  if (cudaHostRegister(memory, size, cudaHostRegisterPortable) == cudaSuccess) {
    return static_cast<std::byte*>(memory);
  }
  munmap(memory, size);
  return nullptr;
}

void UnmapPinned(std::byte* memory, size_t size) {
  {
    const CurrentDevice current(UsedDevice());
    cudaHostUnregister(memory);
  }
  munmap(memory, size);
}

}  // namespace telegrad::kernels::cuda
