#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace telegrad {

void CheckFailed(const char* file, int line, const char* what) {
  std::fprintf(stderr, "%s:%d: invariant broken: %s\n", file, line, what);
  std::abort();
}

}  // namespace telegrad
