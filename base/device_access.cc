#include "base/device_access.h"

#include <sys/mman.h>

#include <map>

#include "base/check.h"
#include "base/mutex.h"

namespace telegrad {
namespace {

// The protection of pages is the process's, and so is this.
struct Pages {
  Mutex mutex;
  std::map<std::byte*, size_t> regions ABSL_GUARDED_BY(mutex);
  int num_open ABSL_GUARDED_BY(mutex) = 0;

  void Protect() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    const int access = num_open > 0 ? PROT_READ | PROT_WRITE : PROT_NONE;
    for (const auto& [data, size] : regions) {
      TELEGRAD_CHECK(mprotect(data, size, access) == 0,
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
  munmap(memory, found->second);
  pages.regions.erase(found);
}

}  // namespace

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
  void* const memory =
      mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  TELEGRAD_CHECK(memory != MAP_FAILED, "memory for a buffer is available");
  Pages& pages = AllPages();
  MutexLock lock(&pages.mutex);
  pages.regions[static_cast<std::byte*>(memory)] = size;
  if (pages.num_open > 0) pages.Protect();
  return Buffer(static_cast<std::byte*>(memory), size, kEmulatedDevice,
                &GiveBack);
}

}  // namespace telegrad
