#pragma once

#include <span>
#include <string>
#include <vector>

#include "kvstore/job/path/worker_group.h"
#include "kvstore/options.h"

namespace telegrad {

// What worker 0 tells all servers of new tensors, and what every worker must
// have the same; the settings never change.
struct JobConfig {
  std::vector<TensorSpec> tensors;
  CompressionConfig compression;
  OptimizerConfig optimizer;
  size_t chunk_elems = 0;
  bool has_values = false;  // worker 0 sends initial values of `tensors`
  bool is_async = false;
  int64_t max_staleness = kAnyStaleness;  // if it is
  int drop_slowest = 0;                   // if it is not
};

// Facts for the scheduler to compare among workers; short values that a person
// can read.
Facts MakeFacts(const JobConfig& config);
// AgreeOnFacts of these; where tensors differ the error names the first.
absl::Status AgreeOnConfig(WorkerGroup& group, absl::string_view name,
                           const JobConfig& config);
// Describes an optimizer: "sgd lr 0.1 ...".
std::string OptimizerFact(const OptimizerConfig& config);

std::string SerializeJobConfig(const JobConfig& config);

// Bytes from a network: every field is checked, the model is limited to
// `max_model_bytes` (ResourceExhausted), names to their alphabet.
absl::StatusOr<JobConfig> ParseJobConfig(absl::string_view text,
                                         int64_t max_model_bytes);

}  // namespace telegrad
