#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvstore/backups.h"
#include "trainer/data/batch_reader.h"
#include "trainer/run/worker_run.h"

namespace telegrad {

// --drop-slowest: a worker that is slow leaves out the steps that the others
// have made meanwhile, and their batches. Does nothing where servers wait for
// all. One thread.
class BackupSteps {
 public:
  // `reader`, of all devices' parts of a step, outlives it; so does the store.
  BackupSteps(const RunContext& context, BatchReader& reader)
      : backups_(context.store.extras().backups),
        reader_(reader),
        batches_per_step_(context.options.devices *
                          context.options.grad_accumulation) {}

  bool is_on() const { return backups_ != nullptr; }
  // `takes_all`: a step after which all meet, at an epoch's end or for a
  // checkpoint. All workers know it, and none leaves it out.
  absl::Status Before(bool takes_all) {
    return is_on() ? backups_->TakeAll(takes_all) : absl::OkStatus();
  }
  // How many steps of the epoch this worker leaves out, behind one that does
  // not take all.
  absl::StatusOr<int64_t> After();
  int64_t num_left_out() const { return num_left_out_; }

 private:
  Backups* const backups_;
  BatchReader& reader_;
  const int64_t batches_per_step_;
  int64_t num_left_out_ = 0;
};

}  // namespace telegrad
