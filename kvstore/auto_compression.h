#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvstore/kvstore.h"
#include "topology/calibration.h"
#include "topology/cost_model.h"

// `--gc-type auto`: compress when it makes the step faster, and only then.
namespace telegrad {

struct AutoOptions {
  std::string codec = "2bit";  // that may be used
  CompressionConfig compression = {};
  int cores = 1;  // of a worker, for codecs
  size_t chunk_elems = size_t{512} * 1024;
};

// Seconds of one step on this worker.
struct StepTimes {
  double step = 0;
  double exchange = 0;  // from the first push to the last answer
  double wait = 0;      // in which nothing else was done
};

// What all workers saw of some steps: times of the slowest, speeds of the
// slowest.
struct Observation {
  StepTimes median = {};
  double exchange_spread = 0;  // relative, of the medians' samples
  CodecFigures codec = {};
  double reduce_elems_per_s = 0;
};

struct AutoDecision {
  std::vector<bool> is_compressed = {};  // by tensor
  bool any = false;
  double link_bytes_per_s = 0;  // infinity: the link is not what takes time
  double break_even_bytes_per_s = 0;
  double exchange_s = 0;  // predicted with the codec
  std::string reason = {};
};

// A pure function, the same on all workers: which of the tensors (elements;
// 0: not one that may be compressed) go by the codec. The link's rate is the
// one with which the cost model gives the dense exchange that was measured. A
// codec is used when the exchange becomes shorter even with all speeds at the
// low end of their spread, and the step by more than 1 %.
absl::StatusOr<AutoDecision> DecideCompression(
    std::span<const int64_t> tensor_elems,
    const std::vector<bool>& may_compress, ClusterCost cluster,
    size_t chunk_elems, const Observation& seen);

// Watches training through its step times. In order of use: the store is
// initialised with CompressionConfig::starts_dense, then Start, then AfterStep
// after every step, by all workers alike. Dense steps are measured first; a
// decision is checked against the steps that follow it and taken back when
// they are slower; later, when exchanges take another time than then, all is
// measured anew. One thread.
class AutoCompression {
 public:
  AutoCompression(KVStore& store, const AutoOptions& options)
      : store_(store), options_(options) {}

  // Measures the codec (a fraction of a second). Tensors that a rule names are
  // compressed at once.
  absl::Status Start();
  // What there is to say, if anything. Errors are the store's.
  absl::StatusOr<std::vector<std::string>> AfterStep(const StepTimes& times);

  bool is_compressing() const { return is_compressing_; }

 private:
  enum class State { kMeasureDense, kCheck, kStable };
  // Of the samples, over all workers.
  absl::StatusOr<Observation> GatherObservation();
  absl::Status Switch(const std::vector<bool>& is_compressed);
  void Enter(State state, int settle_steps);
  absl::StatusOr<std::vector<std::string>> Decide();
  absl::StatusOr<std::vector<std::string>> Check();
  absl::StatusOr<std::vector<std::string>> Review();

  KVStore& store_;
  const AutoOptions options_;
  CodecFigures codec_ = {};
  double reduce_elems_per_s_ = 0;
  std::vector<int64_t> elems_ = {};
  std::vector<bool> may_compress_ = {};
  State state_ = State::kMeasureDense;
  int settle_ = 0;  // steps to leave out
  int num_wanted_ = 0;
  std::vector<StepTimes> samples_ = {};
  double dense_step_s_ = 0;
  double reference_s_ = 0;  // exchange, when the last decision was made
  bool is_compressing_ = false;
  bool was_taken_back_ = false;
  int64_t step_ = 0;
};

}  // namespace telegrad
