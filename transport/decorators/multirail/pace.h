#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>

#include "base/clock.h"
#include "transport/decorators/multirail/wire.h"

namespace telegrad::multirail {

// Messages of less are small: they tell of a connection's latency.
constexpr size_t kSmallBytes = size_t{64} << 10;

// How fast a connection sends, by the parts that it has sent of late.
class Pace {
 public:
  // It is given bytes after it had none.
  void Begin(TimePoint now) {
    if (now - last_ > kStale) bytes_ = seconds_ = 0;
    last_ = now;
  }
  // It has sent so many.
  void Add(size_t bytes, TimePoint now) {
    if (bytes >= kSmallBytes) {
      bytes_ = kMemory * bytes_ + static_cast<double>(bytes);
      seconds_ = kMemory * seconds_ + ToSeconds(now - last_);
    }
    last_ = now;
  }
  bool is_known() const { return seconds_ > 0; }
  // Until it has sent `given`, which it was given, and `more` behind that; it
  // may stand still just now. 0: not known.
  double SecondsFor(size_t given, size_t more, TimePoint now) const {
    if (!is_known()) return 0;
    const double pace = seconds_ / bytes_;
    const double due = pace * static_cast<double>(std::min(given, kPartBytes));
    const double late = given == 0 ? 0 : ToSeconds(now - last_) - due;
    return pace * static_cast<double>(given + more) + std::max(0.0, late);
  }

 private:
  // The weight of what was before the last.
  static constexpr double kMemory = 7.0 / 8;
  static constexpr Duration kStale = std::chrono::seconds(1);

  TimePoint last_ = {};  // when it was given or has sent something
  double bytes_ = 0;
  double seconds_ = 0;
};

}  // namespace telegrad::multirail
