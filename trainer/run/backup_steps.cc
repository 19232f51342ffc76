#include "trainer/run/backup_steps.h"

#include "base/status_macros.h"

namespace telegrad {

absl::StatusOr<int64_t> BackupSteps::After() {
  if (!is_on()) return 0;
  ASSIGN_OR_RETURN(const int64_t left_out, backups_->CatchUp());
  reader_.Skip(static_cast<size_t>(left_out * batches_per_step_));
  num_left_out_ += left_out;
  return left_out;
}

}  // namespace telegrad
