#include "tests/simt/wait_sites.h"

#include <dlfcn.h>
#include <execinfo.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <set>

namespace telegrad::simt {
namespace {

constexpr int kMostFrames = 8;

struct Sites {
  std::mutex mutex;
  std::set<uintptr_t> seen;
  std::FILE* list = nullptr;
  uintptr_t left_out = 0;  // 0: none
};

Sites& All() {
  static auto* const sites = [] {
    auto* const made = new Sites;
    const char* const path = std::getenv("TELEGRAD_SIMT_WAITS");
    const char* const site = std::getenv("TELEGRAD_SIMT_LEFT_OUT");
    if (path != nullptr) made->list = std::fopen(path, "w");
    if (site != nullptr) made->left_out = std::strtoull(site, nullptr, 16);
    return made;
  }();
  return *sites;
}

}  // namespace

bool IsLeftOut(const void* queue_call) {
  Sites& sites = All();
  if (sites.list == nullptr && sites.left_out == 0) return false;
  void* frames[kMostFrames];
  const int num_frames = backtrace(frames, kMostFrames);
  int i = 0;
  while (i < num_frames && frames[i] != queue_call) ++i;
  Dl_info place;
  if (i + 1 >= num_frames || dladdr(frames[i + 1], &place) == 0) return false;
  const uintptr_t site = reinterpret_cast<uintptr_t>(frames[i + 1]) -
                         reinterpret_cast<uintptr_t>(place.dli_fbase);
  const std::lock_guard<std::mutex> lock(sites.mutex);
  if (sites.list != nullptr && sites.seen.insert(site).second) {
    std::fprintf(sites.list, "%llx %s\n", static_cast<unsigned long long>(site),
                 place.dli_sname == nullptr ? "?" : place.dli_sname);
    std::fflush(sites.list);
  }
  return site == sites.left_out;
}

}  // namespace telegrad::simt
