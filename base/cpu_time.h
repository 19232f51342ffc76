#pragma once

#include <time.h>

namespace telegrad {

// Seconds that all threads of this process together have had a core.
inline double ProcessCpuSeconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) +
         1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace telegrad
