#include "base/check.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <exception>
#include <new>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <vector>

#include "base/bytes.h"
#include "base/exit_code.h"
#include "base/start_thread.h"

namespace telegrad {
namespace {

constexpr int kMemoryCode = static_cast<int>(ExitCode::kResourceLimit);

TEST(OutOfMemory, EndsTheProgramWithItsCodeAndALine) {
  EXPECT_EXIT(OutOfMemory(1234), ::testing::ExitedWithCode(kMemoryCode),
              "\"event\":\"fatal\",\"code\":32,\"reason\":\"resource_limit\","
              "\"message\":\"no memory for 1234 bytes\"");
  EXPECT_EXIT(Buffer(size_t{1} << 60), ::testing::ExitedWithCode(kMemoryCode),
              "no memory for 1152921504606846976 bytes");
}

void Raise(const std::exception_ptr& error) { std::rethrow_exception(error); }

TEST(OutOfMemory, IsWhatAnUncaughtBadAllocIsOnAnyThread) {
  EXPECT_EXIT(
      {
        EndWhenOutOfMemory();
        std::thread(Raise, std::make_exception_ptr(std::bad_alloc())).join();
      },
      ::testing::ExitedWithCode(kMemoryCode), "no memory");
  EXPECT_EXIT(
      {
        EndWhenOutOfMemory();
        std::thread(Raise,
                    std::make_exception_ptr(std::runtime_error("another")))
            .join();
      },
      ::testing::KilledBySignal(SIGABRT), "another");
  EXPECT_EXIT(
      {
        EndWhenOutOfMemory();
        std::thread(Raise, std::make_exception_ptr(std::system_error(
                               EAGAIN, std::generic_category())))
            .join();
      },
      ::testing::ExitedWithCode(kMemoryCode),
      "no thread: the limit of .*ulimit -u");
}

TEST(OutOfThreads, EndsALibrarysProcessAndNamesItsLimits) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer has more address space than that";
#endif
  const auto start_many = [] {
    rlimit limit{};
    limit.rlim_cur = limit.rlim_max = rlim_t{4} << 30;
    setrlimit(RLIMIT_AS, &limit);
    std::vector<std::thread> threads;
    for (;;) {
      threads.push_back(StartThread([] {
        for (;;) pause();
      }));
    }
  };
  EXPECT_EXIT(start_many(), ::testing::ExitedWithCode(kMemoryCode),
              "no thread: .*ulimit -u.*address space 4194304 KiB");
}

}  // namespace
}  // namespace telegrad
