#pragma once

#include <string>

#include "kvstore/states.h"

namespace telegrad {

class DistWorker;

// A worker's way to what servers keep: worker 0 asks for each chunk's, one
// after the other, while no worker has an operation under way.
class WorkerStates : public StateAccess {
 public:
  explicit WorkerStates(DistWorker& worker) : worker_(worker) {}
  absl::StatusOr<std::string> Save() override;
  absl::Status Load(absl::string_view text) override;

 private:
  absl::Status CheckIdle() const;
  absl::StatusOr<OptimizerStates> Fetch();
  absl::Status FetchTensor(Key key, TensorState& state);
  absl::Status Send(const OptimizerStates& states);

  DistWorker& worker_;
};

}  // namespace telegrad
