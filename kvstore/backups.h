#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace telegrad {

// A worker's side of StoreOptions::drop_slowest, where rounds may go on without
// it. Whoever calls neither loses nothing: each of its pushes counts once, and
// each answer has the newest weights. While this worker has no operation under
// way.
class Backups {
 public:
  virtual ~Backups() = default;

  // How many rounds have passed in which this worker pushed nothing, each of
  // its tensors counted; the next pushes are of the round that is open, as far
  // as this worker knows. Who counts steps adds it, and so leaves out what the
  // others have done meanwhile.
  virtual absl::StatusOr<int64_t> CatchUp() = 0;
  // From now on rounds wait for all, until it is false again: all workers call
  // it before the same step. With such a round nothing that was pushed before
  // is left out, and all get the same weights.
  virtual absl::Status TakeAll(bool takes_all) = 0;
};

}  // namespace telegrad
