#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/clock.h"
#include "kvstore/timeline.h"

namespace telegrad::c {

// PREFIX of a job's traces in `folder`: of characters that names of files have.
std::string TracePrefix(absl::string_view folder, absl::string_view job_id);

// The traces of a worker's store, as those of the trainer's --timeline: of a
// job that ends well PREFIX-worker<rank>.json with three steps, of another one
// PREFIX-worker<rank>.last with the last spans. A step begins with an operation
// of the first key. One thread at a time.
class StoreTrace {
 public:
  StoreTrace(Timeline& timeline, std::string prefix)
      : timeline_(timeline), prefix_(std::move(prefix)) {}

  // Before an operation of `key`; `names` of all keys that there are.
  void BeforeOperation(Key key, int rank,
                       const std::vector<std::string>& names);
  void FinishWell(int rank, const std::vector<std::string>& names);

 private:
  std::string Base(int rank) const;

  Timeline& timeline_;
  const std::string prefix_;
  size_t num_names_ = 0;  // of the ring
  int64_t num_steps_ = 0;
};

}  // namespace telegrad::c
