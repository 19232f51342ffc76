#include "kvstore/ps/worker/worker_backups.h"

#include <algorithm>
#include <limits>

#include "base/status_macros.h"

namespace telegrad {

// Chunks are answered one by one, and rounds may end in between: the fewest
// that any chunk knows of is a step that all of them have.
absl::StatusOr<int64_t> WorkerBackups::CatchUp() {
  RETURN_IF_ERROR(tensors_.CheckIdle("CatchUp"));
  constexpr uint64_t kNone = std::numeric_limits<uint64_t>::max();
  uint64_t missed = kNone;
  for (size_t key = 0; key < tensors_.size(); ++key) {
    const uint64_t own = tensors_[key].turns.rounds();
    for (const auto& chunk : tensors_[key].chunks) {
      if (chunk->num_rounds == 0) continue;  // it has not been pushed
      missed = std::min(missed, std::max(chunk->num_rounds.load(), own) - own);
    }
  }
  if (missed == kNone || missed == 0) return 0;
  for (size_t key = 0; key < tensors_.size(); ++key) {
    WorkerTurns& turns = tensors_[key].turns;
    if (turns.rounds() > 0) turns.set_rounds(turns.rounds() + missed);
  }
  return static_cast<int64_t>(missed);
}

absl::Status WorkerBackups::TakeAll(bool takes_all) {
  RETURN_IF_ERROR(tensors_.CheckIdle("TakeAll"));
  pipeline_.switches().takes_all = takes_all;
  return absl::OkStatus();
}

}  // namespace telegrad
