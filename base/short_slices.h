#pragma once

#include <cstdint>

namespace telegrad {

// While this lives, the thread that made it asks the kernel for slices of
// 0.3 ms of a processor; its share stays the same. For threads that own a
// connection and those that encode for them: with the kernel's own slices, of
// some milliseconds, one that computes keeps the one with the connection
// waiting, and the link stands still. Linux 6.12 and newer (EEVDF,
// sched_setattr(2) with sched_runtime); elsewhere, and under real-time
// policies, nothing happens. Threads that are started meanwhile inherit the
// slice; the destructor asks for the length that was in force before.
class ShortSlices {
 public:
  ShortSlices();
  ~ShortSlices();
  ShortSlices(const ShortSlices&) = delete;
  ShortSlices& operator=(const ShortSlices&) = delete;

 private:
  uint64_t before_ns_ = 0;
  bool is_changed_ = false;
};

}  // namespace telegrad
