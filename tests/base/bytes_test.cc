#include "base/bytes.h"

#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "base/tensor_view.h"
#include "gtest/gtest.h"

namespace telegrad {
namespace {

TEST(Buffer, OfAnySizeIsAlignedAndZero) {
  for (const size_t size : {size_t{1}, size_t{65}, size_t{300} << 10}) {
    const absl::StatusOr<Buffer> buffer = Buffer::Create(size);
    ASSERT_TRUE(buffer.ok()) << size;
    EXPECT_EQ(buffer->size(), size);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % Buffer::kAlignment,
              0u);
    EXPECT_EQ(buffer->data()[0], std::byte{0});
    EXPECT_EQ(buffer->data()[size - 1], std::byte{0});
  }
}

TEST(Buffer, OfNothingIsNothing) {
  const absl::StatusOr<Buffer> buffer = Buffer::Create(0);
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ(buffer->data(), nullptr);
  EXPECT_EQ(buffer->size(), 0u);
}

// More than any address space has.
TEST(Buffer, WithoutMemoryIsAnError) {
  for (const size_t size : {size_t{1} << 60, size_t{1} << 63, ~size_t{0}}) {
    const absl::StatusOr<Buffer> buffer = Buffer::Create(size);
    EXPECT_EQ(buffer.status().code(), absl::StatusCode::kResourceExhausted)
        << size;
  }
}

TEST(Buffer, MovedFromIsEmpty) {
  Buffer from(100);
  Buffer to(std::move(from));
  EXPECT_EQ(from.size(), 0u);  // NOLINT: what a moved-from buffer is
  EXPECT_EQ(from.view().data, nullptr);
  EXPECT_EQ(to.size(), 100u);
  Buffer next;
  next = std::move(to);
  EXPECT_EQ(to.size(), 0u);  // NOLINT
  EXPECT_EQ(next.size(), 100u);
}

TEST(TensorView, KnowsWhetherBytesAndElementsAgree) {
  float elems[3] = {};
  EXPECT_TRUE(HostTensor(elems, 3).IsConsistent());
  TensorView view = {
      .bytes = {elems, 6}, .dtype = Dtype::kBfloat16, .num_elems = 3};
  EXPECT_TRUE(view.IsConsistent());
  view.bytes.size = 7;
  EXPECT_FALSE(view.IsConsistent());
  view.bytes.size = 8;
  EXPECT_FALSE(view.IsConsistent());
  view.num_elems = -1;
  EXPECT_FALSE(view.IsConsistent());
}

}  // namespace
}  // namespace telegrad
