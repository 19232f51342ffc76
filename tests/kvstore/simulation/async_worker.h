#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "kvstore/dist_options.h"
#include "kvstore/job/path/worker_group.h"
#include "kvstore/kvstore.h"
#include "tests/kvstore/simulation/job_oracle.h"
#include "tests/kvstore/simulation/push_ledger.h"

namespace telegrad::testing {

// A worker's program with a dist_async store, as the library's elastic jobs
// have it: weights are in memory, and what servers have counts.
class AsyncWorker {
 public:
  // `place`: among all workers that ever are.
  AsyncWorker(const Scenario& scenario, JobOracle& oracle, PushLedger& pushes,
              DistOptions options, size_t place);
  absl::Status Run();
  int64_t num_steps() const { return step_; }

 private:
  absl::Status Train();
  absl::Status Begin();
  absl::Status Step();
  absl::Status PullAll();
  absl::Status End();

  const Scenario& scenario_;
  JobOracle& oracle_;
  PushLedger& pushes_;
  DistOptions options_;
  const size_t place_;
  std::unique_ptr<WorkerGroup> group_;
  std::unique_ptr<KVStore> store_;
  OfTensors weights_;
  int64_t step_ = 0;
  int64_t num_pushes_ = 0;
};

}  // namespace telegrad::testing
