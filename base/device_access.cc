#include "base/device_access.h"

#include <sys/mman.h>
#include <unistd.h>

#include <map>

#include "base/check.h"
#include "base/mutex.h"

namespace telegrad {
namespace {

struct Region {
  size_t size = 0;
  std::byte* twin = nullptr;  // open addresses of these pages
};

// The protection of pages is the process's, and so is this.
struct Pages {
  Mutex mutex;
  std::map<std::byte*, Region> regions ABSL_GUARDED_BY(mutex);
  int num_open ABSL_GUARDED_BY(mutex) = 0;

  void Protect() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    const int access = num_open > 0 ? PROT_READ | PROT_WRITE : PROT_NONE;
    for (const auto& [data, region] : regions) {
      TELEGRAD_CHECK(mprotect(data, region.size, access) == 0,
                     "pages of the emulated device can be protected");
    }
  }
};

Pages& AllPages() {
  static auto* const pages = new Pages;
  return *pages;
}

void GiveBack(std::byte* memory) {
  Pages& pages = AllPages();
  MutexLock lock(&pages.mutex);
  const auto found = pages.regions.find(memory);
  munmap(memory, found->second.size);
  munmap(found->second.twin, found->second.size);
  pages.regions.erase(found);
}

std::byte* Map(int file, size_t size, int access) {
  void* const memory = mmap(nullptr, size, access, MAP_SHARED, file, 0);
  TELEGRAD_CHECK(memory != MAP_FAILED, "memory for a buffer is available");
  return static_cast<std::byte*>(memory);
}

}  // namespace

Bytes Reach(Bytes memory) {
  if (memory.device != kEmulatedDevice || memory.size == 0) return memory;
  Pages& pages = AllPages();
  MutexLock lock(&pages.mutex);
  auto region = pages.regions.upper_bound(memory.data);
  TELEGRAD_CHECK(
      region != pages.regions.begin() &&
          (--region)->first + region->second.size >= memory.data + memory.size,
      "the emulated device's memory is MakeEmulatedBuffer's");
  return {region->second.twin + (memory.data - region->first), memory.size};
}

ConstBytes Reach(ConstBytes memory) {
  return Reach(
      Bytes(const_cast<std::byte*>(memory.data), memory.size, memory.device));
}

void DeviceAccess::Open() {
  Pages& pages = AllPages();
  MutexLock lock(&pages.mutex);
  if (++pages.num_open == 1) pages.Protect();
}

void DeviceAccess::Close() {
  Pages& pages = AllPages();
  MutexLock lock(&pages.mutex);
  if (--pages.num_open == 0) pages.Protect();
}

Buffer MakeEmulatedBuffer(size_t size) {
  if (size == 0) return {};
  const int file = memfd_create("telegrad device", MFD_CLOEXEC);
  TELEGRAD_CHECK(file >= 0 && ftruncate(file, static_cast<off_t>(size)) == 0,
                 "memory for a buffer is available");
  Pages& pages = AllPages();
  MutexLock lock(&pages.mutex);
  const int access = pages.num_open > 0 ? PROT_READ | PROT_WRITE : PROT_NONE;
  std::byte* const memory = Map(file, size, access);
  pages.regions[memory] = {size, Map(file, size, PROT_READ | PROT_WRITE)};
  close(file);
  return Buffer(memory, size, kEmulatedDevice, &GiveBack);
}

}  // namespace telegrad
