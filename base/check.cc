#include "base/check.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>

#include "base/exit_code.h"

namespace telegrad {
namespace {

[[noreturn]] void OnTerminate() {
  try {
    if (const std::exception_ptr error = std::current_exception()) {
      std::rethrow_exception(error);
    }
  } catch (const std::bad_alloc&) {
    OutOfMemory(0);
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
  char wanted[32] = "";
  if (num_bytes > 0) {
    std::snprintf(wanted, sizeof(wanted), " for %zu bytes", num_bytes);
  }
  char line[160];
  const int size = std::snprintf(
      line, sizeof(line),
      "{\"event\":\"fatal\",\"code\":%d,\"reason\":\"%s\",\"message\":"
      "\"no memory%s\"}\n",
      static_cast<int>(ExitCode::kResourceLimit),
      ExitReason(ExitCode::kResourceLimit), wanted);
  [[maybe_unused]] const ssize_t written =
      write(STDERR_FILENO, line, static_cast<size_t>(std::clamp(size, 0, 159)));
  _exit(static_cast<int>(ExitCode::kResourceLimit));
}

void EndWhenOutOfMemory() { std::set_terminate(OnTerminate); }

}  // namespace telegrad
