#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/metrics.h"
#include "kvstore/ps/worker/worker_tensor.h"

namespace telegrad {

// How long a worker's operations take, by what they are and how large.
// Thread-safe, without a lock.
class RoundTimes {
 public:
  // Now `op` of a tensor of so many bytes, as elements, ends.
  void Add(const WorkerOp& op, size_t num_bytes);
  // `algo_proto`: as NCCL's Inspector has it, "dist_sync_tcp".
  void Collect(const std::string& algo_proto, MetricsPage& page) const;

 private:
  struct OfSize {
    std::atomic<int64_t> num{0};
    std::atomic<int64_t> num_bytes{0};
  };
  static constexpr size_t kKinds = 5;  // by OpKind; broadcasts are one
  static constexpr size_t kSizes = 5;
  struct OfKind {
    DurationHistogram durations;
    std::array<OfSize, kSizes> sizes;
  };
  std::array<OfKind, kKinds> kinds_;
};

}  // namespace telegrad
