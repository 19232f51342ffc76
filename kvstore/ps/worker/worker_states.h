#pragma once

#include <string>

#include "kvstore/engine/state/recut.h"
#include "kvstore/kvstore.h"
#include "kvstore/ps/wire/job_config.h"
#include "kvstore/ps/worker/server_questions.h"
#include "kvstore/ps/worker/tensor_table.h"

namespace telegrad {

// A worker's way to what servers keep: worker 0 asks for each chunk's, one
// after the other, while no worker has an operation under way.
class WorkerStates : public StateAccess, private CodecStates {
 public:
  // All outlive it.
  WorkerStates(const StoreTraits& traits, WorkerGroup& group,
               const JobConfig& config, const EngineConfig& engine,
               const TensorTable& tensors, ServerQuestions& questions,
               WorkerFailure& failure)
      : traits_(traits),
        group_(group),
        config_(config),
        engine_(engine),
        tensors_(tensors),
        questions_(questions),
        failure_(failure) {}
  absl::StatusOr<std::string> Save() override;
  absl::Status Load(absl::string_view text) override;
  CodecStates* codec_states() override { return this; }

 private:
  absl::StatusOr<std::string> SaveCodec(Key key) override;
  absl::StatusOr<std::string> SaveOwnCodec(Key key) override;
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

  const StoreTraits& traits_;
  WorkerGroup& group_;
  const JobConfig& config_;
  const EngineConfig& engine_;
  const TensorTable& tensors_;
  ServerQuestions& questions_;
  WorkerFailure& failure_;
};

}  // namespace telegrad
