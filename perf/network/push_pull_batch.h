#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvstore/kvstore.h"
#include "perf/network/push_pull_options.h"

namespace telegrad::perf {

// The tensors that one line of the report pushes and pulls.
struct Batch {
  std::string profile = {};
  Key first = 0;
  std::vector<size_t> counts = {};
  std::vector<std::string> names = {};  // a profile's
  size_t num_elems() const {
    size_t sum = 0;
    for (const size_t count : counts) sum += count;
    return sum;
  }
};

absl::StatusOr<std::vector<Batch>> BatchesOf(const PushPullOptions& options);

// By key.
std::vector<TensorSpec> TensorsOf(const std::vector<Batch>& batches);

// Where this process starts all ranks they share what this host can have:
// ResourceExhausted with exit code kResourceLimit where that is too little.
absl::Status CheckMemoryOf(const PushPullOptions& options);

}  // namespace telegrad::perf
