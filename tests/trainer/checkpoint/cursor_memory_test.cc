#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <string>

#include "tests/testing/status_matchers.h"
#include "trainer/checkpoint/cursor.h"

// The most memory that a cursor takes beside its text.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

namespace {

size_t in_use = 0;
size_t most_in_use = 0;

void Free(void* memory) {
  in_use -= malloc_usable_size(memory);
  std::free(memory);
}

}  // namespace

void* operator new(size_t size) {
  void* const memory = std::malloc(size);
  if (memory == nullptr) std::abort();
  in_use += malloc_usable_size(memory);
  most_in_use = std::max(most_in_use, in_use);
  return memory;
}
void operator delete(void* memory) noexcept { Free(memory); }
void operator delete(void* memory, size_t) noexcept { Free(memory); }

namespace telegrad {
namespace {

using ::telegrad::testing::IsOk;

// A run of a small data set has hundreds of points an hour, and each checkpoint
// has them all.
TEST(Cursors, TakeLittleMoreMemoryThanTheirText) {
  constexpr int kPoints = 1000;
  Cursor cursor;
  for (int i = 0; i < kPoints; ++i) {
    cursor.points.push_back({.epoch = i,
                             .step = 4 * i,
                             .seconds = 1.1 * i,
                             .train_loss = 1.0 / (i + 1),
                             .train_accuracy = 0.9,
                             .test_loss = 0.3,
                             .test_accuracy = 0.8,
                             .wire_bytes = 1000 * i});
  }
  size_t before = most_in_use = in_use;
  const std::string text = CursorText(cursor);
  // A string that grows, and the whole that it is copied to.
  EXPECT_LT(most_in_use - before, 5 * text.size());
  before = most_in_use = in_use;
  const absl::StatusOr<Cursor> parsed = ParseCursor(text);
  ASSERT_THAT(parsed, IsOk());
  EXPECT_EQ(parsed->points.size(), size_t{kPoints});
  EXPECT_EQ(parsed->points.back().step, 4 * (kPoints - 1));
  // A vector that grows.
  EXPECT_LT(most_in_use - before, 4 * kPoints * sizeof(MetricPoint));
}

}  // namespace
}  // namespace telegrad
