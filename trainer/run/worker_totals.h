#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kvstore/kvstore.h"
#include "trainer/report/results.h"
#include "trainer/run/stragglers.h"

namespace telegrad {

// A worker's own totals; the summary holds sums over workers.
struct WorkerTotals {
  StoreStats traffic;
  double comm_wait_s = 0;
  int64_t num_left_out = 0;  // --drop-slowest: steps
  std::string weights_sha256;
  std::vector<double> step_seconds;
  StepShares shares;
};

// What a worker tells all others of itself.
std::string ToText(const WorkerTotals& totals);

// What is no sum in the totals of another worker.
struct GivenTotals {
  std::string weights_sha256;  // escaped
  int64_t max_staleness = 0;
  double mean_staleness = 0;
  int64_t num_late = 0;
  int64_t num_left_out = 0;
  std::optional<StepShares> shares;
};
// Adds a worker's text to `summary`; `slowest` takes the maximum of each step.
// InvalidArgument names the field that is none, or no number that can be.
absl::StatusOr<GivenTotals> AddTotals(absl::string_view text,
                                      RunSummary& summary,
                                      std::vector<double>& slowest);

// The resident set's peak of this process, in bytes; 0 when unknown.
int64_t PeakMemoryBytes();

}  // namespace telegrad
