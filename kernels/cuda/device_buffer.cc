#include "kernels/cuda/device_buffer.h"

#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <unordered_map>

#include "kernels/cuda/current_device.h"
#include "kernels/cuda/pinned.h"

namespace telegrad::kernels::cuda {
namespace {

struct Owner {
  int ordinal = 0;
  cudaStream_t stream = nullptr;
  bool is_pooled = false;
};

// What a Buffer's end, which knows nothing but the address, looks up. Never
// destroyed: buffers of static objects end late.
struct Owners {
  std::mutex mutex;
  std::unordered_map<std::byte*, Owner> device;
  std::unordered_map<std::byte*, size_t> pinned;
  std::map<int, bool> has_pool;  // by device
};
Owners& AllOwners() {
  static auto* const owners = new Owners;
  return *owners;
}

// Whether the current device has a pool. Its first use tells the pool to keep
// what it is given back.
bool HasPool(int ordinal, Owners& owners) {
  const auto [found, is_new] = owners.has_pool.emplace(ordinal, false);
  if (!is_new) return found->second;
  int has_pools = 0;
  cudaMemPool_t pool = nullptr;
  uint64_t keep_all = UINT64_MAX;
  found->second =
      cudaDeviceGetAttribute(&has_pools, cudaDevAttrMemoryPoolsSupported,
                             ordinal) == cudaSuccess &&
      has_pools != 0 &&
      cudaDeviceGetDefaultMemPool(&pool, ordinal) == cudaSuccess &&
      cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold,
                              &keep_all) == cudaSuccess;
  if (!found->second) cudaGetLastError();
  return found->second;
}

void FreeDevice(std::byte* memory) {
  Owners& owners = AllOwners();
  Owner owner;
  {
    const std::lock_guard<std::mutex> lock(owners.mutex);
    const auto found = owners.device.find(memory);
    owner = found->second;
    owners.device.erase(found);
  }
  const CurrentDevice device(owner.ordinal);
  if (owner.is_pooled) {
    cudaFreeAsync(memory, owner.stream);
  } else {
    cudaFree(memory);  // waits for the device
  }
}

void FreePinned(std::byte* memory) {
  Owners& owners = AllOwners();
  size_t size = 0;
  {
    const std::lock_guard<std::mutex> lock(owners.mutex);
    const auto found = owners.pinned.find(memory);
    size = found->second;
    owners.pinned.erase(found);
  }
  UnmapPinned(memory, size);
}

Buffer MakeBuffer(size_t size, const Owner& owner) {
  void* memory = nullptr;
  const cudaError_t error = owner.is_pooled
                                ? cudaMallocAsync(&memory, size, owner.stream)
                                : cudaMalloc(&memory, size);
  if (error != cudaSuccess) {
    cudaGetLastError();  // so that nobody else takes it for theirs
    return Buffer();
  }
  auto* const bytes = static_cast<std::byte*>(memory);
  {
    Owners& owners = AllOwners();
    const std::lock_guard<std::mutex> lock(owners.mutex);
    owners.device[bytes] = owner;
  }
  Buffer buffer(bytes, size, {DeviceKind::kCuda, owner.ordinal}, FreeDevice);
  if (cudaMemsetAsync(memory, 0, size, owner.stream) == cudaSuccess) {
    return buffer;
  }
  cudaGetLastError();
  return Buffer();
}

}  // namespace

Buffer MakeDeviceBuffer(size_t size, int ordinal, Stream stream) {
  if (size == 0) return Buffer();
  const CurrentDevice device(ordinal);
  Owners& owners = AllOwners();
  Owner owner{ordinal, static_cast<cudaStream_t>(stream.handle), false};
  {
    const std::lock_guard<std::mutex> lock(owners.mutex);
    owner.is_pooled = HasPool(ordinal, owners);
  }
  return MakeBuffer(size, owner);
}

Buffer MakeCardBuffer(size_t size, int ordinal) {
  if (size == 0) return Buffer();
  const CurrentDevice device(ordinal);
  Buffer buffer = MakeBuffer(size, {ordinal, nullptr, false});
  // Streams of a queue do not wait for the one of the memset.
  if (cudaStreamSynchronize(nullptr) == cudaSuccess) return buffer;
  cudaGetLastError();
  return Buffer();
}

void ForgetStream(int ordinal, Stream stream) {
  Owners& owners = AllOwners();
  const std::lock_guard<std::mutex> lock(owners.mutex);
  for (auto& [memory, owner] : owners.device) {
    if (owner.ordinal == ordinal && owner.stream == stream.handle) {
      owner.stream = nullptr;
    }
  }
}

Buffer MakePinnedBuffer(size_t size, int numa_node) {
  if (size == 0) return Buffer();
  std::byte* const bytes = MapPinned(size, numa_node);
  if (bytes == nullptr) return Buffer();
  Owners& owners = AllOwners();
  const std::lock_guard<std::mutex> lock(owners.mutex);
  owners.pinned[bytes] = size;
  return Buffer(bytes, size, Device{}, FreePinned);
}

}  // namespace telegrad::kernels::cuda
