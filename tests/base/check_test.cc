#include "base/check.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <csignal>
#include <exception>
#include <new>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "base/bytes.h"
#include "base/exit_code.h"

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
      ::testing::ExitedWithCode(kMemoryCode), "no thread: see ulimit -u");
}

}  // namespace
}  // namespace telegrad
