#include "base/check.h"

#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <system_error>

#include "base/exit_code.h"

namespace telegrad {
namespace {

[[noreturn]] void EndForWantOf(const char* what) {
  char line[320];
  const int size = std::snprintf(
      line, sizeof(line),
      "{\"event\":\"fatal\",\"code\":%d,\"reason\":\"%s\",\"message\":"
      "\"no %s\"}\n",
      static_cast<int>(ExitCode::kResourceLimit),
      ExitReason(ExitCode::kResourceLimit), what);
  pollfd polled{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
  poll(&polled, 1, 500);  // one that nobody reads must not hold this up
  [[maybe_unused]] const ssize_t written =
      polled.revents == 0
          ? 0
          : write(STDERR_FILENO, line,
                  static_cast<size_t>(std::clamp(size, 0, 319)));
  _exit(static_cast<int>(ExitCode::kResourceLimit));
}

[[noreturn]] void OnTerminate() {
  try {
    if (const std::exception_ptr error = std::current_exception()) {
      std::rethrow_exception(error);
    }
  } catch (const std::bad_alloc&) {
    OutOfMemory(0);
  } catch (const std::system_error& error) {
    if (error.code() == std::errc::resource_unavailable_try_again) {
      OutOfThreads();
    }
  } catch (...) {
  }
  __gnu_cxx::__verbose_terminate_handler();  // what there is otherwise
  std::abort();
}

}  // namespace

void CheckFailed(const char* file, int line, const char* what) {
  std::fprintf(stderr, "%s:%d: invariant broken: %s\n", file, line, what);
  std::abort();
}

void OutOfMemory(size_t num_bytes) {
  char wanted[48] = "memory";
  if (num_bytes > 0) {
    std::snprintf(wanted, sizeof(wanted), "memory for %zu bytes", num_bytes);
  }
  EndForWantOf(wanted);
}

void OutOfThreads() {
  const auto limit_of = [](auto resource) {
    rlimit limit{};
    return getrlimit(resource, &limit) == 0 ? limit.rlim_cur : RLIM_INFINITY;
  };
  // Each has a stack, which is address space.
  const rlim_t space = limit_of(RLIMIT_AS);
  char memory[64] = "";
  if (space != RLIM_INFINITY) {
    std::snprintf(memory, sizeof(memory), ", of address space %llu KiB (-v)",
                  static_cast<unsigned long long>(space / 1024));
  }
  char wanted[160];
  std::snprintf(wanted, sizeof(wanted),
                "thread: the limit of processes and threads is %lld (ulimit "
                "-u), a container's is its pids.max%s",
                static_cast<long long>(limit_of(RLIMIT_NPROC)), memory);
  EndForWantOf(wanted);
}

void EndWhenOutOfMemory() { std::set_terminate(OnTerminate); }

}  // namespace telegrad
