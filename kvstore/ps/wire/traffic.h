#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/metrics.h"

namespace telegrad {

// Bytes of one member by codec: raw as elements, wire as frames with their
// headers. Thread-safe, without a lock.
class Traffic {
 public:
  struct Sums {
    int64_t raw_bytes = 0;
    int64_t wire_bytes = 0;
  };

  // `codec`: a frame's, which may be anything.
  void Add(uint8_t codec, size_t raw_bytes, size_t wire_bytes) {
    Counts& counts = codecs_[std::min<size_t>(codec, kCodecs - 1)];
    counts.raw_bytes.fetch_add(static_cast<int64_t>(raw_bytes),
                               std::memory_order_relaxed);
    counts.wire_bytes.fetch_add(static_cast<int64_t>(wire_bytes),
                                std::memory_order_relaxed);
  }
  Sums sums() const {
    Sums sums;
    for (const Counts& counts : codecs_) {
      sums.raw_bytes += counts.raw_bytes;
      sums.wire_bytes += counts.wire_bytes;
    }
    return sums;
  }
  // A series of each for each codec that something went by.
  void Collect(const Metric& raw, const Metric& wire, MetricsPage& page) const;

 private:
  struct Counts {
    std::atomic<int64_t> raw_bytes{0};
    std::atomic<int64_t> wire_bytes{0};
  };
  static constexpr size_t kCodecs = 32;
  std::array<Counts, kCodecs> codecs_;  // by CodecId
};

}  // namespace telegrad
