#pragma once

namespace telegrad {

// Prints `file:line: invariant broken: what` and aborts.
[[noreturn]] void CheckFailed(const char* file, int line, const char* what);

}  // namespace telegrad

// For our own broken invariants only, never for input: `what` is the invariant
// in words.
#define TELEGRAD_CHECK(condition, what)                  \
  do {                                                   \
    if (!(condition)) [[unlikely]]                       \
      ::telegrad::CheckFailed(__FILE__, __LINE__, what); \
  } while (false)
