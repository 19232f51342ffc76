#include <gtest/gtest.h>

#include "topology/nvidia/nvml_facts.h"

namespace telegrad {
namespace {

TEST(NvlinkGbytes, FollowsTheVersionsOfNvml) {
  // Both directions of all links, gigabytes/s, of NVIDIA's data sheets.
  const struct {
    const char* gpu;
    int version;
    int capability;
    int links;
    double both_ways;
  } cases[] = {{"P100", 1, 60, 4, 160},
               {"V100", 2, 70, 6, 300},
               {"A100", 4, 80, 12, 600},
               {"H100", 6, 90, 18, 900},
               {"B200", 7, 100, 18, 1800}};
  for (const auto& each : cases) {
    EXPECT_EQ(
        2 * each.links * nvidia::NvlinkGbytes(each.version, each.capability),
        each.both_ways)
        << each.gpu;
  }
  EXPECT_EQ(nvidia::NvlinkGbytes(3, 70), 25);
  EXPECT_EQ(nvidia::NvlinkGbytes(5, 86), 25);
}

TEST(NvlinkGbytes, HoppersLinksAreNotFasterForBeingCalledVersionFive) {
  EXPECT_EQ(nvidia::NvlinkGbytes(7, 90), 25);
}

TEST(NvlinkGbytes, UnknownVersionsHaveNone) {
  EXPECT_EQ(nvidia::NvlinkGbytes(0, 90), 0);
  EXPECT_EQ(nvidia::NvlinkGbytes(8, 100), 0);
}

}  // namespace
}  // namespace telegrad
