#pragma once

#include <pthread.h>
#include <time.h>

namespace telegrad {

inline double SecondsOf(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) +
         1e-9 * static_cast<double>(time.tv_nsec);
}

// Seconds that this thread has had a core, or all of this process together.
inline double ThreadCpuSeconds() { return SecondsOf(CLOCK_THREAD_CPUTIME_ID); }
inline double ProcessCpuSeconds() {
  return SecondsOf(CLOCK_PROCESS_CPUTIME_ID);
}

// ThreadCpuSeconds of the calling thread for SecondsOf on others, while it
// lives.
inline clockid_t OwnCpuClock() {
  clockid_t clock = CLOCK_THREAD_CPUTIME_ID;
  pthread_getcpuclockid(pthread_self(), &clock);  // fails for none that runs
  return clock;
}

}  // namespace telegrad
