#include "kvstore/tuning/turns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace telegrad {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(FragmentTurns, NeighboursOfAboutAsManyBytesAreTogether) {
  const uint64_t sizes[] = {10, 10, 10, 10, 20, 20};
  EXPECT_THAT(TurnsOf(sizes, 8, 4), ElementsAre(0, 0, 2, 2, 4, 6));
  EXPECT_THAT(TurnsOf(sizes, 8, 1), Each(0));
}

TEST(FragmentTurns, ALargeTensorHasTimeUntilTheNextTensorsTurn) {
  const uint64_t sizes[] = {10, 80, 10};
  EXPECT_THAT(TurnsOf(sizes, 10, 5), ElementsAre(0, 2, 8));
}

TEST(FragmentTurns, EachIsBeforeTheLastStep) {
  const uint64_t sizes[] = {0, 1, 0};
  EXPECT_THAT(TurnsOf(sizes, 3, 3), ElementsAre(0, 0, 2));
  const uint64_t empty[] = {0, 0};
  EXPECT_THAT(TurnsOf(empty, 3, 3), Each(0));
  EXPECT_THAT(TurnsOf({}, 3, 3), IsEmpty());
}

}  // namespace
}  // namespace telegrad
