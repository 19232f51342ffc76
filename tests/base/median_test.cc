#include "base/median.h"

#include <gtest/gtest.h>

namespace telegrad {
namespace {

TEST(Median, IsTheMiddleValueOfAnyOrder) {
  EXPECT_EQ(Median({}), 0);
  EXPECT_EQ(Median({7}), 7);
  EXPECT_EQ(Median({9, 1, 5}), 5);
  EXPECT_EQ(Median({3, 100, -4, 2}), 3);
  EXPECT_EQ(Median({2, 2, 1, 2}), 2);
}

}  // namespace
}  // namespace telegrad
