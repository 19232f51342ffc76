#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "kvstore/engine/codec/engine_config.h"
#include "kvstore/engine/codec/shard_plan.h"
#include "kvstore/states.h"

// What codecs keep of a tensor, in other chunks and on other workers.
namespace telegrad {

struct Recut {
  TensorSpec spec = {};
  TensorLayout from = {};  // layout in the store that wrote the texts
  TensorLayout to = {};
  // The configuration of tensors on the host.
  const EngineConfig* config = nullptr;
};

// As CodecStates::RecutCodec; worker 0's text `has_sums`, the servers'.
// DataLoss where a text is of another tensor or layout.
absl::StatusOr<std::string> RecutCodecs(const Recut& recut,
                                        const OldCodecs& old, bool has_sums);
// As CodecStates::HeldNorm.
absl::StatusOr<double> HeldNorm(const Recut& recut, const OldCodecs& old);

}  // namespace telegrad
