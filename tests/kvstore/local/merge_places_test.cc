#include "kvstore/local/merge_places.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace telegrad {
namespace {

using ::testing::ElementsAre;

TEST(MergePlaces, AreDealtOutLargestFirst) {
  const std::vector<TensorSpec> tensors = {
      {"a", 10}, {"b", 70}, {"c", 40}, {"d", 30}, {"e", 20}};
  std::vector<size_t> loads(2);
  // b 70 | c 40; d to c's, where 70 are then; e to the first, a to the other.
  EXPECT_THAT(DealOut(tensors, loads), ElementsAre(1, 0, 1, 1, 0));
  EXPECT_THAT(loads, ElementsAre(90, 80));
}

TEST(MergePlaces, GoOnWithWhatIsThere) {
  std::vector<size_t> loads = {5, 0, 9};
  EXPECT_THAT(DealOut(std::vector<TensorSpec>{{"a", 3}, {"b", 4}}, loads),
              ElementsAre(1, 1));
  EXPECT_THAT(loads, ElementsAre(5, 7, 9));
  std::vector<size_t> one = {0};
  EXPECT_THAT(DealOut(std::vector<TensorSpec>{{"a", 3}, {"b", 4}}, one),
              ElementsAre(0, 0));
}

}  // namespace
}  // namespace telegrad
