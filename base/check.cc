#include "base/check.h"

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
  char line[160];
  const int size = std::snprintf(
      line, sizeof(line),
      "{\"event\":\"fatal\",\"code\":%d,\"reason\":\"%s\",\"message\":"
      "\"no %s\"}\n",
      static_cast<int>(ExitCode::kResourceLimit),
      ExitReason(ExitCode::kResourceLimit), what);
  [[maybe_unused]] const ssize_t written =
      write(STDERR_FILENO, line, static_cast<size_t>(std::clamp(size, 0, 159)));
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
      EndForWantOf("thread: see ulimit -u, and pids.max of a container");
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

void EndWhenOutOfMemory() { std::set_terminate(OnTerminate); }

}  // namespace telegrad
