#pragma once

#include <string>

#include "kvstore/engine/recut.h"
#include "kvstore/states.h"

namespace telegrad {

class DistWorker;

// A worker's way to what servers keep: worker 0 asks for each chunk's, one
// after the other, while no worker has an operation under way.
class WorkerStates : public StateAccess, private CodecStates {
 public:
  explicit WorkerStates(DistWorker& worker) : worker_(worker) {}
  absl::StatusOr<std::string> Save() override;
  absl::Status Load(absl::string_view text) override;
  CodecStates* codec_states() override { return this; }

 private:
  absl::StatusOr<std::string> SaveCodec(Key key) override;
  absl::Status LoadCodec(Key key, absl::string_view text) override;
  absl::StatusOr<std::string> RecutCodec(Key key,
                                         const OldCodecs& old) override;
  absl::StatusOr<double> HeldNorm(Key key, const OldCodecs& old) override;
  absl::StatusOr<Recut> RecutOf(Key key, const OldCodecs& old) const;
  absl::Status CheckIdle() const;
  absl::Status CheckCodec(Key key) const;
  absl::StatusOr<OptimizerStates> Fetch();
  absl::Status FetchTensor(Key key, TensorState& state);
  absl::Status Send(const OptimizerStates& states);

  DistWorker& worker_;
};

}  // namespace telegrad
