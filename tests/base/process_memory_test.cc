#include "base/process_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace telegrad {
namespace {

uint64_t PlaceOf(const void* data) { return reinterpret_cast<uint64_t>(data); }

TEST(ProcessMemory, IsReadAsItStandsThere) {
  const std::string theirs(3 << 20, 'x');
  std::string ours(theirs.size(), '?');
  EXPECT_TRUE(ReadProcess(getpid(), {ours.data(), ours.size()},
                          PlaceOf(theirs.data())));
  EXPECT_TRUE(ours == theirs);
  EXPECT_TRUE(ReadProcess(getpid(), {ours.data(), 0}, 0));
}

TEST(ProcessMemory, WhatIsNotThereIsNotRead) {
  std::string ours(8, '?');
  EXPECT_FALSE(ReadProcess(getpid(), {ours.data(), ours.size()}, 0));
  EXPECT_FALSE(ReadProcess(getpid(), {ours.data(), ours.size()}, ~uint64_t{0}));
  const pid_t gone = fork();
  if (gone == 0) _exit(0);
  ASSERT_EQ(waitpid(gone, nullptr, 0), gone);
  EXPECT_FALSE(
      ReadProcess(gone, {ours.data(), ours.size()}, PlaceOf(ours.data())));
}

TEST(ProcessMemory, EndsThatNobodyMayReadAreSeen) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* const mapped = mmap(nullptr, 3 * page, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  auto* const bytes = static_cast<char*>(mapped);
  EXPECT_TRUE(IsReadableByProcesses({bytes, 3 * page}));
  ASSERT_EQ(mprotect(bytes + 2 * page, page, PROT_NONE), 0);
  EXPECT_TRUE(IsReadableByProcesses({bytes, 2 * page}));
  EXPECT_FALSE(IsReadableByProcesses({bytes, 2 * page + 1}));
  EXPECT_FALSE(IsReadableByProcesses({bytes + 2 * page, 1}));
  EXPECT_TRUE(IsReadableByProcesses({bytes + 2 * page, 0}));
  munmap(mapped, 3 * page);
}

size_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  size_t whole = 0, resident = 0;
  statm >> whole >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

// What threads have freed stays in their arenas, below what is still in use.
TEST(ProcessMemory, WhatIsFreeIsGivenBack) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "AddressSanitizer has a malloc of its own";
#endif
  constexpr size_t kBlock = 4096, kNumBlocks = 10000;
  std::vector<std::string> kept;
  std::thread([&] {
    std::vector<std::string> blocks;
    for (size_t i = 0; i < kNumBlocks; ++i) blocks.emplace_back(kBlock, 'x');
    kept.push_back(std::move(blocks.back()));
  }).join();
  const size_t before = ResidentBytes();
  ReturnFreeMemory();
  EXPECT_LT(ResidentBytes() + kBlock * kNumBlocks / 2, before);
}

}  // namespace
}  // namespace telegrad
