#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kvstore/job/path/worker_group.h"
#include "perf/network/network_options.h"

namespace telegrad::perf {

// A worker of the job among those that measure.
struct Rank {
  explicit Rank(WorkerGroup& workers)
      : rank(workers.rank()), gather([&workers](const std::string& mine) {
          return workers.Gather("perf", mine);
        }) {}
  int rank;
  // Each worker gives `mine`, at most 1 MiB, and gets all, by rank; a barrier,
  // too. All call it equally often.
  std::function<absl::StatusOr<std::vector<std::string>>(
      const std::string& mine)>
      gather;
};

// Iterations of one size, on one rank. Times are in microseconds.
struct Series {
  std::vector<double> us;
  double cpu_s = 0;  // this rank's
  int64_t payload_bytes = 0;
  int64_t header_bytes = 0;
};

// Iterations of one size on all ranks: each iteration's slowest rank.
struct Result {
  int iterations = 0;
  double p50_us = 0;
  double p99_us = 0;
  double min_us = 0;
  double max_us = 0;
  double cpu_s = 0;          // sum over ranks, of one iteration
  double payload_bytes = 0;  // mean over ranks, of one iteration
  double header_bytes = 0;
  std::vector<double> times_us = {};  // all iterations', in their order
};

// Gathers the ranks' series. Ranks without times (they only serve) give an
// empty one.
absl::StatusOr<Result> Combine(const Rank& rank, const Series& mine);

// One iteration; returns microseconds.
using Iteration = std::function<absl::StatusOr<double>()>;

// Warms up, agrees with all ranks on the number of iterations, and runs them.
absl::StatusOr<Series> RunIterations(const NetworkOptions& options,
                                     const Rank& rank,
                                     const Iteration& iteration);

}  // namespace telegrad::perf
