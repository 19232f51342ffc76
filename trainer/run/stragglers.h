#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/clock.h"
#include "kvstore/kvstore.h"

// Who makes all others wait, and by what.
namespace telegrad {

// What a worker's steps took, in sums; without the first one, which prepares
// much.
struct StepShares {
  int64_t steps = 0;
  double step_s = 0;
  double compute_s = 0;  // seconds of steps, all but waiting
  double codec_s = 0;    // StoreStats', as the next one
  double network_s = 0;
  bool pushes = true;  // itself; else another worker of its host does
  // The server whose answers take it longest; -1: there is one.
  int server = -1;
  double answer_s = 0;   // the server's mean
  double answers_s = 0;  // the median server's
};

// A line for other workers, and back; none for anything else.
std::string ToText(const StepShares& shares);
std::optional<StepShares> ReadShares(absl::string_view text);

struct Straggler {
  std::string who;    // "worker/3", "server/1"
  std::string cause;  // "compute", "encode", "network", "server"
  double seconds = 0;
  double median = 0;      // the median of all; of two, the smaller
  bool is_again = false;  // StragglerWatch told of it before
};
// Finds workers and servers that take at least twice the median, and by that a
// tenth of a step; for each worker the cause that costs most. Encoding, network
// and servers overlap with computing, so they count only while others wait for
// a tenth of a step. `workers` by rank; none before all have made a few steps.
std::vector<Straggler> FindStragglers(std::span<const StepShares> workers);
// "straggler worker/3: 5.1 times the median, compute: 210 ms, not 41.2 ms".
std::string ToText(const Straggler& straggler);

// Watches a worker's own steps and, on worker 0, those of all by their notes.
// One thread.
class StragglerWatch {
 public:
  // `store` has joined and outlives it.
  explicit StragglerWatch(KVStore& store) : store_(store) {}

  // What worker 0 is to say, if anything: a straggler again after a minute.
  std::vector<Straggler> AfterStep(double step_s, double wait_s);
  StepShares mine() const;

 private:
  std::vector<Straggler> Look(TimePoint now);

  KVStore& store_;
  std::optional<StoreStats> first_;  // when the first step was over
  StepShares sums_;                  // what the store does not know
  TimePoint next_note_;
  TimePoint next_look_;
  std::vector<StepShares> before_;  // by rank, when it looked last
  std::map<std::string, TimePoint> told_;
};

}  // namespace telegrad
