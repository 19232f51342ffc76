#pragma once

#include <cstddef>

namespace telegrad {

// Prints `file:line: invariant broken: what` and aborts.
[[noreturn]] void CheckFailed(const char* file, int line, const char* what);

// Writes a fatal line that says so and ends the process with exit code
// resource_limit. `num_bytes` were wanted; 0: not known. Allocates nothing.
[[noreturn]] void OutOfMemory(size_t num_bytes);
// Ends it like that for a thread, and says this process's limits.
[[noreturn]] void OutOfThreads();
// From now on a std::bad_alloc that nobody catches, on any thread, is
// OutOfMemory(0), and a thread that cannot be had OutOfThreads(). For programs.
void EndWhenOutOfMemory();

}  // namespace telegrad

// For our own broken invariants only, never for input: `what` is the invariant
// in words.
#define TELEGRAD_CHECK(condition, what)                  \
  do {                                                   \
    if (!(condition)) [[unlikely]]                       \
      ::telegrad::CheckFailed(__FILE__, __LINE__, what); \
  } while (false)
