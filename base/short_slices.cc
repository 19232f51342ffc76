#include "base/short_slices.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <optional>

namespace telegrad {
namespace {

// Shorter ones lose more to changes of threads than links gain.
constexpr uint64_t kShortNs = 300'000;

// struct sched_attr of sched_setattr(2), first version. The kernel's header
// cannot be included beside glibc's <sched.h>.
struct Attributes {
  uint32_t size = sizeof(Attributes);
  uint32_t policy = 0;
  uint64_t flags = 0;
  int32_t nice = 0;
  uint32_t priority = 0;
  uint64_t runtime_ns = 0;
  uint64_t deadline_ns = 0;
  uint64_t period_ns = 0;
};
static_assert(sizeof(Attributes) == 48);

std::optional<Attributes> Get() {
  Attributes attributes;
  if (syscall(SYS_sched_getattr, 0, &attributes, sizeof(attributes), 0) != 0) {
    return std::nullopt;
  }
  return attributes;
}

bool Set(Attributes attributes, uint64_t ns) {
  attributes.runtime_ns = ns;
  return syscall(SYS_sched_setattr, 0, &attributes, 0) == 0;
}

}  // namespace

ShortSlices::ShortSlices() {
  const std::optional<Attributes> before = Get();
  if (!before.has_value()) return;
  // Others have no slices, or (SCHED_DEADLINE) another meaning of the field.
  if (before->policy != SCHED_OTHER && before->policy != SCHED_BATCH) return;
  before_ns_ = before->runtime_ns;
  is_changed_ = Set(*before, kShortNs);
}

ShortSlices::~ShortSlices() {
  if (!is_changed_) return;
  const std::optional<Attributes> now = Get();
  if (now.has_value()) Set(*now, before_ns_);
}

}  // namespace telegrad
