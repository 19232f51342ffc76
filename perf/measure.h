#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "perf/ceilings.h"
#include "perf/huge_array.h"
#include "perf/options.h"
#include "perf/team.h"

namespace telegrad::perf {

struct Peer {
  std::string name;
  RangeBody body;
};

// One loop to measure, beside its peers and the ceiling of its traffic.
struct Job {
  std::string name = {};   // "2bit/encode"
  std::string codec = {};  // the codec that it is for, as --gc-type takes it
  double bytes_per_element = 0;
  Traffic traffic = Traffic::kNone;
  size_t granule = 512;  // shares of threads begin at its multiples
  RangeBody body = {};
  std::vector<Peer> peers = {};
  // Share of codes that are not 0, as measured; -1: no matter.
  double density = -1;
};

// What was measured.
struct Row {
  std::string what = {};  // "kernel", "codec"
  std::string kernels = {};
  size_t elements = 0;
  int threads = 1;
  double elements_per_s = 0;
  double ceiling_bytes_per_s = 0;  // 0: none
  std::string ceiling = {};        // the fastest variant
  // Elements per second.
  std::vector<std::pair<std::string, double>> peers = {};
};

// Runs jobs and prints a line for each: in every round the job, each peer and
// each variant of the ceiling once, so that what else the machine does meets
// them alike; the median over rounds counts.
class Meter {
 public:
  // `what` names the program's part in the output.
  Meter(std::string what, const SpeedOptions& options);

  // Whether --filter lets `name` through.
  bool Takes(const std::string& name) const;
  void Run(const Job& job, Team& team, size_t elements);

  // InvalidArgument where --filter let nothing through.
  absl::Status Finish() const;

 private:
  // The loops of a job, the job's own first.
  std::vector<RangeBody> Loops(const Job& job);
  void Print(const Job& job, const Row& row);

  const std::string what_;
  const SpeedOptions& options_;
  // No zeros, which memory may take faster.
  HugeArray source_;
  HugeArray destination_;
  bool has_rows_ = false;
};

}  // namespace telegrad::perf
