#pragma once

#include <chrono>
#include <cstddef>

#include "base/clock.h"

namespace telegrad::striped {

// How fast a connection sends, by what it has sent of late.
class Pace {
 public:
  // It is given bytes after it had none.
  void Begin(TimePoint now) { busy_since_ = now; }
  // It has sent so many.
  void Add(size_t bytes, TimePoint now) {
    bytes_ = kMemory * bytes_ + static_cast<double>(bytes);
    seconds_ = kMemory * seconds_ +
               std::chrono::duration<double>(now - busy_since_).count();
    busy_since_ = now;
  }
  bool is_known() const { return seconds_ > 0; }
  // 0: not known.
  double seconds_per_byte() const { return is_known() ? seconds_ / bytes_ : 0; }

 private:
  static constexpr double kMemory = 7.0 / 8;  // of what was before the last
  TimePoint busy_since_ = {};
  double bytes_ = 0;
  double seconds_ = 0;
};

}  // namespace telegrad::striped
