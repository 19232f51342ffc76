#include "tests/simt/device_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size) ((void)(address))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) ((void)(address))
#endif

namespace telegrad::simt {
namespace {

// Whole pages, one behind them that nobody can touch.
struct Pages {
  size_t bytes;  // without the last
  int device;
};

size_t PageBytes() {
  static const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

std::mutex& Mutex() {
  static std::mutex mutex;
  return mutex;
}

// By address; never destroyed, as kernels of static objects' tests may end
// late.
std::map<char*, Pages>& AllPages() {
  static auto* const pages = new std::map<char*, Pages>;
  return *pages;
}

// Those that `pointer` is in, or null.
const std::pair<char* const, Pages>* PagesOf(const void* pointer) {
  char* const at = const_cast<char*>(static_cast<const char*>(pointer));
  auto found = AllPages().upper_bound(at);
  if (found == AllPages().begin()) return nullptr;
  --found;
  return at < found->first + found->second.bytes ? &*found : nullptr;
}

// By address.
std::map<const char*, size_t>& AllHost() {
  static auto* const host = new std::map<const char*, size_t>;
  return *host;
}

// Where that is which `pointer` is in, or null.
const char* HostOf(const void* pointer) {
  const auto* const at = static_cast<const char*>(pointer);
  auto found = AllHost().upper_bound(at);
  if (found == AllHost().begin()) return nullptr;
  --found;
  return at < found->first + found->second ? found->first : nullptr;
}

}  // namespace

DeviceAccess::DeviceAccess(int device, const void* first, const void* second)
    : lock_(Mutex()), device_(device), pointers_{first, second} {
  Protect(PROT_READ | PROT_WRITE);
}

DeviceAccess::~DeviceAccess() { Protect(PROT_NONE); }

void DeviceAccess::Protect(int protection) {
  if (device_ != kNone) {
    for (const auto& [memory, pages] : AllPages()) {
      if (pages.device != device_) continue;
      mprotect(memory, pages.bytes, protection);
    }
    return;
  }
  for (const void* pointer : pointers_) {
    const auto* const found = PagesOf(pointer);
    if (found == nullptr) continue;
    mprotect(found->first, found->second.bytes, protection);
  }
}

void* AllocateDevice(int device, size_t size) {
  const std::lock_guard<std::mutex> lock(Mutex());
  const size_t page = PageBytes();
  const size_t bytes = (size + page - 1) / page * page;
  void* const memory = mmap(nullptr, bytes + page, PROT_NONE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  char* const first = static_cast<char*>(memory);
  AllPages()[first] = {bytes, device};
  mprotect(first, bytes, PROT_READ | PROT_WRITE);
  std::memset(first, kPoison, size);
  mprotect(first, bytes, PROT_NONE);
  ASAN_POISON_MEMORY_REGION(first + size, bytes - size);
  return first;
}

bool FreeDevice(void* memory) {
  const std::lock_guard<std::mutex> lock(Mutex());
  const auto found = AllPages().find(static_cast<char*>(memory));
  if (found == AllPages().end()) return false;
  const size_t bytes = found->second.bytes;
  AllPages().erase(found);
  ASAN_UNPOISON_MEMORY_REGION(memory, bytes);
  return munmap(memory, bytes + PageBytes()) == 0;
}

bool IsDevice(const void* pointer) { return DeviceOf(pointer) >= 0; }

int DeviceOf(const void* pointer) {
  const std::lock_guard<std::mutex> lock(Mutex());
  const auto* const found = PagesOf(pointer);
  return found == nullptr ? -1 : found->second.device;
}

bool AddHost(const void* memory, size_t size) {
  const std::lock_guard<std::mutex> lock(Mutex());
  if (HostOf(memory) != nullptr) return false;
  AllHost()[static_cast<const char*>(memory)] = size;
  return true;
}

bool RemoveHost(const void* memory) {
  const std::lock_guard<std::mutex> lock(Mutex());
  return AllHost().erase(static_cast<const char*>(memory)) > 0;
}

bool IsReachableHost(const void* pointer) {
  const std::lock_guard<std::mutex> lock(Mutex());
  return HostOf(pointer) != nullptr;
}

}  // namespace telegrad::simt
