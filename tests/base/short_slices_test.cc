#include "base/short_slices.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace telegrad {
namespace {

// sched_runtime of this thread, ns; 0 where the kernel says none.
uint64_t Slice() {
  uint64_t attributes[6] = {sizeof(attributes)};
  if (syscall(SYS_sched_getattr, 0, attributes, sizeof(attributes), 0) != 0) {
    return 0;
  }
  return attributes[3];
}

TEST(ShortSlices, AreTheThreadsWhileTheyLive) {
  const uint64_t before = Slice();
  if (before == 0) GTEST_SKIP() << "this kernel knows no slices of threads";
  const int policy = sched_getscheduler(0);
  if (policy != SCHED_OTHER && policy != SCHED_BATCH) {
    GTEST_SKIP() << "policy " << policy << " has no slices";
  }
  {
    const ShortSlices slices;
    EXPECT_EQ(Slice(), 300'000u);
    EXPECT_EQ(sched_getscheduler(0), policy);
  }
  EXPECT_EQ(Slice(), before);
}

}  // namespace
}  // namespace telegrad
