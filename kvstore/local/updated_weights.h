#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "kvstore/engine/codec/chunk_sum.h"
#include "kvstore/engine/codec/shard_plan.h"
#include "kvstore/options.h"

namespace telegrad {

// One tensor's weights in a store of one process whose updater steps them: [n]
// f32 in host memory. Its chunks' results are parts of them. One thread at a
// time, but for TakeSum.
class UpdatedWeights {
 public:
  // `updater` lives at least as long.
  UpdatedWeights(const Updater& updater, Key key, const TensorSpec& spec);

  // [n] f32: what was given or broadcast; so for a Step, the results of all
  // chunks become parts of it.
  void Set(ConstBytes value, std::span<const ChunkSum> sums,
           std::span<ChunkResult> results);
  // A chunk's part of the round's sum, as floats; any thread, each its chunk.
  void TakeSum(const Chunk& chunk, ConstBytes sum);
  // After all of them. The updater's error, or what it throws, ends it, and the
  // weights stay.
  absl::Status Step(std::span<const ChunkSum> sums,
                    std::span<ChunkResult> results);

 private:
  void Give(std::span<const ChunkSum> sums,
            std::span<ChunkResult> results) const;

  const Updater& updater_;
  const Key key_;
  const std::string name_;
  Buffer sum_;
  std::array<Buffer, 2> weights_;  // the ones in force, and a step's
  size_t in_force_ = 0;
};

}  // namespace telegrad
