#pragma once

#include <span>
#include <string>
#include <vector>

#include "kvstore/kvstore.h"

namespace telegrad {

// What worker 0 tells all members, and what every worker must have the same.
struct JobConfig {
  std::vector<TensorSpec> tensors;
  CompressionConfig compression;
  OptimizerConfig optimizer;
  size_t chunk_elems = 0;
  bool has_values = false;  // worker 0 sends initial values
  bool resends = false;     // TransportOptions::resend
};

// Facts for the scheduler to compare among workers; short values that a person
// can read.
Facts MakeFacts(const JobConfig& config);

// The same of how data travels, besides the transport, on which members settle
// (kvstore/dist/members.h): what the options come to.
Facts TransportFacts(const TransportChoice& choice);

std::string SerializeJobConfig(const JobConfig& config);

// Bytes from a network: every field is checked, the model is limited to
// `max_model_bytes` (ResourceExhausted), names to their alphabet.
absl::StatusOr<JobConfig> ParseJobConfig(absl::string_view text,
                                         int64_t max_model_bytes);

// InvalidArgument for an empty list, a bad name, or a size of 0 or beyond
// kMaxTensorElems.
absl::Status CheckTensors(std::span<const TensorSpec> tensors);
constexpr size_t kMaxTensorElems = size_t{1} << 40;
constexpr size_t kMaxChunkElems = size_t{16} << 20;  // kMaxPayloadBytes

// InvalidArgument when settings contradict each other (reply mode sum with
// codec none is no contradiction: it is dense).
absl::Status CheckConfig(const CompressionConfig& compression,
                         const OptimizerConfig& optimizer);

}  // namespace telegrad
