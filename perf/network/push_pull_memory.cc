#include "perf/network/push_pull_memory.h"

#include <algorithm>
#include <fstream>
#include <string>

#include "absl/strings/str_format.h"
#include "base/exit_code.h"

namespace telegrad::perf {
namespace {

constexpr uint64_t kElemBytes = sizeof(float);

// The number in a file that has one; "max" is none.
std::optional<uint64_t> NumberIn(const char* path) {
  std::ifstream file(path);
  uint64_t number = 0;
  if (file >> number) return number;
  return std::nullopt;
}

std::optional<uint64_t> MemAvailable() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  std::string unit;
  uint64_t kib = 0;
  while (file >> name >> kib && std::getline(file, unit)) {
    if (name == "MemAvailable:") return kib << 10;
  }
  return std::nullopt;
}

}  // namespace

uint64_t MemoryBytes(const PushPullSizes& sizes) {
  const auto workers = static_cast<uint64_t>(sizes.workers);
  // A gradient and a sum; of codes a residual, a frame and a reply of each
  // tensor.
  uint64_t elems = 2 * sizes.largest_batch_elems +
                   (sizes.compresses ? 3 * sizes.all_elems : 0);
  if (sizes.checks && sizes.replays) {
    // All workers' residuals and payloads, and gradients of one tensor.
    elems += 2 * workers * sizes.largest_batch_elems +
             (workers + 1) * sizes.largest_tensor_elems;
  } else if (sizes.checks) {
    elems += 2 * sizes.largest_tensor_elems;
  }
  // Servers keep each worker's push, the sum and the reply.
  return kElemBytes * (workers * elems + (workers + 2) * sizes.all_elems);
}

std::optional<uint64_t> AvailableMemoryBytes() {
  std::optional<uint64_t> available = MemAvailable();
  const auto limit = NumberIn("/sys/fs/cgroup/memory.max");
  const auto used = NumberIn("/sys/fs/cgroup/memory.current");
  if (limit.has_value() && used.has_value()) {
    const uint64_t left = *limit > *used ? *limit - *used : 0;
    available = std::min(available.value_or(left), left);
  }
  return available;
}

absl::Status CheckMemory(const PushPullSizes& sizes, uint64_t available_bytes) {
  const uint64_t needed = MemoryBytes(sizes);
  if (needed <= available_bytes) return absl::OkStatus();
  constexpr double kGib = 1 << 30;
  return WithExitCode(
      ExitCode::kResourceLimit,
      absl::ResourceExhaustedError(absl::StrFormat(
          "%d workers on this host%s need about %.1f GiB of memory, and %.1f "
          "GiB are available: take fewer --workers or less --size%s, or "
          "--overcommit",
          sizes.workers, sizes.checks ? " with --check" : "",
          static_cast<double>(needed) / kGib,
          static_cast<double>(available_bytes) / kGib,
          sizes.checks ? ", leave --check out" : "")));
}

}  // namespace telegrad::perf
