#include <cstdlib>

#include "tests/simt/ranges_tool.h"
#include "tests/simt/steps.h"

// What a profiler sees of the thread of a device.
namespace telegrad {
namespace {

using testing::IsOk;

// NVTX looks for it with the first range of the process.
[[maybe_unused]] const int is_set =
    setenv("NVTX_INJECTION64_PATH", TELEGRAD_RANGES_TOOL, 1);

TEST(Ranges, AreOneForEachGroupAndEnd) {
  {
    testing::Steps steps("2bit");
    for (int step = 0; step < 2; ++step) {  // the first one goes dense
      ASSERT_THAT(steps.Run(), IsOk());
    }
    EXPECT_GT(ranges_begun("decode"), 0);
    EXPECT_GE(ranges_begun("copies up"), 1);
    const int encode = ranges_begun("encode");
    const int down = ranges_begun("copies down");
    ASSERT_THAT(steps.PushTogether(), IsOk());
    EXPECT_EQ(ranges_begun("encode"), encode + 1);
    EXPECT_EQ(ranges_begun("copies down"), down + 1);
  }
  EXPECT_EQ(ranges_open(), 0);
}

}  // namespace
}  // namespace telegrad
