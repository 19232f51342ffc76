#include "compression/stream_buffers.h"

#include <gtest/gtest.h>

#include <cstddef>

#include "tests/testing/status_matchers.h"

namespace telegrad {
namespace {

using testing::IsOk;
using testing::StatusIs;

constexpr size_t kSize = 1000;

std::byte* MemoryOf(StreamBuffers& buffers, void* stream,
                    const kernels::KernelTable& table) {
  std::byte* memory = nullptr;
  EXPECT_THAT(buffers.With({stream}, kSize, table,
                           [&](Bytes bytes) {
                             EXPECT_EQ(bytes.size, kSize);
                             memory = bytes.data;
                             return absl::OkStatus();
                           }),
              IsOk());
  return memory;
}

TEST(StreamBuffers, KeepsOneForEachStream) {
  int streams[2];
  StreamBuffers buffers;
  const kernels::KernelTable& table = kernels::CpuKernels();
  std::byte* const first = MemoryOf(buffers, &streams[0], table);
  std::byte* const second = MemoryOf(buffers, &streams[1], table);
  EXPECT_NE(first, second);
  EXPECT_EQ(MemoryOf(buffers, &streams[0], table), first);
  EXPECT_EQ(MemoryOf(buffers, &streams[1], table), second);
}

TEST(StreamBuffers, SaysWhereThereIsNoMemoryLeft) {
  kernels::KernelTable table = kernels::CpuKernels();
  table.make_buffer = [](size_t, int, Stream) { return Buffer(); };
  StreamBuffers buffers;
  const auto use = [](Bytes) { return absl::OkStatus(); };
  EXPECT_THAT(buffers.With({}, kSize, table, use),
              StatusIs(absl::StatusCode::kResourceExhausted, "1000"));
}

TEST(StreamBuffers, GivesBackWhatItsUserSays) {
  StreamBuffers buffers;
  const auto use = [](Bytes) { return absl::UnavailableError("no"); };
  EXPECT_THAT(buffers.With({}, kSize, kernels::CpuKernels(), use),
              StatusIs(absl::StatusCode::kUnavailable, "no"));
}

}  // namespace
}  // namespace telegrad
