#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/metrics.h"
#include "kvstore/ps/server/served_tensors.h"
#include "kvstore/ps/wire/traffic.h"
#include "kvstore/ps/wire/wire.h"

namespace telegrad {

// What a server counts. The server's thread, but for Collect.
class ServerMetrics {
 public:
  // Workers by place, before the others; their ranks.
  void Resize(std::vector<int> ranks) {
    ranks_ = std::move(ranks);
    waited_for_ = std::vector<std::atomic<Duration::rep>>(ranks_.size());
    late_ = std::vector<std::atomic<int64_t>>(ranks_.size());
  }
  // A push is there whole, `is_last` of a round of several.
  void CountPush(const FrameHeader& header, size_t raw_bytes,
                 ServedChunk& chunk, bool is_last);
  void CountSum(const ServedChunk& chunk) {
    rounds_.Add(Clock::now() - chunk.first_at);
  }
  void CountAnswer(const FrameHeader& header, size_t raw_bytes);
  void CountLate(int place) { ++late_[static_cast<size_t>(place)]; }
  void CountDuplicate() { ++num_duplicates_; }
  void CountRefusedConnection() { ++num_refused_connections_; }
  void CountRefusedFrame() { ++num_refused_frames_; }

  void Collect(MetricsPage& page) const;

 private:
  Traffic pushed_;
  Traffic pulled_;
  DurationHistogram rounds_;  // each chunk's
  std::atomic<int64_t> num_frames_{0};
  std::atomic<int64_t> num_duplicates_{0};
  std::atomic<int64_t> num_refused_connections_{0};
  std::atomic<int64_t> num_refused_frames_{0};
  std::vector<int> ranks_;
  std::vector<std::atomic<Duration::rep>> waited_for_;  // by place
  std::vector<std::atomic<int64_t>> late_;              // pushes, as well
};

}  // namespace telegrad
