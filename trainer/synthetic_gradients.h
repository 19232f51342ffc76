#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "kvstore/kvstore.h"

namespace telegrad {

// Gradients of a profile's sizes, filled once: tensor k has the scale 2^-(k%8)
// so that thresholds differ. One thread.
class SyntheticGradients {
 public:
  // The tensors' keys are their places in `specs`.
  SyntheticGradients(std::span<const TensorSpec> specs, uint64_t seed,
                     int rank);

  // One step, in seconds: pushes and pulls everything in the order in which a
  // backward pass would, last layers first; waits in forward order. After an
  // error nothing is under way: DeadlineExceeded names what is missing.
  absl::StatusOr<double> Exchange(KVStore& store,
                                  const std::function<int(size_t)>& priority_of,
                                  TimePoint deadline);

  int64_t num_bytes() const { return num_bytes_; }
  // By tensor, of the last step.
  std::span<const Buffer> sums() const { return sums_; }

 private:
  std::vector<Buffer> grads_;
  std::vector<Buffer> sums_;
  int64_t num_bytes_ = 0;
};

}  // namespace telegrad
