#include "kernels/cuda/pinned.h"

#include <cuda_runtime_api.h>
#include <sys/mman.h>

#include "kernels/cuda/current_device.h"

namespace telegrad::kernels::cuda {

std::byte* MapPinned(size_t size) {
  void* const memory = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  // Behind a fork the parent's next write would go to a copy of the page, and
  // the device would go on with the old one.
  madvise(memory, size, MADV_DONTFORK);
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
