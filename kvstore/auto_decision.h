#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kvstore/kvstore.h"
#include "topology/calibration.h"
#include "topology/cost_model.h"

// What `--gc-type auto` decides, as functions of numbers alone.
namespace telegrad {

// Seconds of one step on this worker.
struct StepTimes {
  double step = 0;
  double exchange = 0;  // from the first push to the last answer
  double wait = 0;      // in which nothing else was done
};

// Of each time; 0 of no samples.
StepTimes MedianTimes(std::span<const StepTimes> samples);

// What all workers saw of some steps: times of the slowest, speeds of the
// slowest.
struct Observation {
  StepTimes median = {};
  double exchange_spread = 0;  // relative, of the medians' samples
  // Those that may be used, in the order of the user's preference.
  std::vector<CodecFigures> codecs = {};
  // Those that some tensors have whatever is decided.
  std::vector<CodecFigures> given_codecs = {};
  double reduce_elems_per_s = 0;
};

// What one of the codecs would do.
struct CodecCandidate {
  std::string name = {};
  std::vector<bool> is_compressed = {};  // by tensor
  double exchange_s = 0;                 // predicted, or measured
  bool is_measured = false;
  bool is_worth_it = false;
  double break_even_bytes_per_s = 0;
};

struct AutoDecision {
  std::vector<CodecCandidate> candidates = {};  // by index of the codec
  int codec = kDenseCodec;
  double link_bytes_per_s = 0;  // infinity: the link is not what takes time
  std::string reason = {};

  bool any() const { return codec != kDenseCodec; }
};

// The codec with the shortest exchange of those that are worth it, the part of
// the exchange that backward hides left aside; kDenseCodec when there is none.
// Of codecs within 5 % the first counts, and `current` stays unless another
// saves 20 %.
int ChooseCodec(std::span<const CodecCandidate> candidates,
                const StepTimes& dense, int current);

// A pure function, the same on all workers: which codec is used, and for which
// of the tensors (elements). `given`: of each the codec that it has whatever is
// decided, "none", or "" where a choice is open. `seen` is of steps in which
// the open ones went dense. The link's rate is the one with which the cost
// model gives the exchange that was measured. A codec is worth it when the
// exchange becomes shorter even with all speeds at the low end of their spread,
// and the step by more than 1 %. `current` is what was used before, for
// hysteresis.
absl::StatusOr<AutoDecision> DecideCompression(
    std::span<const int64_t> tensor_elems, std::span<const std::string> given,
    ClusterCost cluster, size_t chunk_elems, const Observation& seen,
    int current = kDenseCodec);

}  // namespace telegrad
