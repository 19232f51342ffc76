#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "kvstore/engine/codec/chunk_sum.h"
#include "kvstore/engine/codec/tensor_codec.h"

namespace telegrad::perf {

// What the rounds of one tensor must give, from the gradients of all workers:
// by the units that make chunks small and sum them, chunk after chunk in one
// thread, without frames, servers or a network. The same bits as a store's
// (docs/architecture.md, "Determinism"). It does not see what is wrong in these
// units, which have tests of their own; it does see what is in frames, headers,
// checks, routing, threads and the order of arrival.
class Replay {
 public:
  // `layout` is the tensor's in the job (MakeShardPlan).
  static absl::StatusOr<std::unique_ptr<Replay>> Make(
      const TensorLayout& layout, const CompressionConfig& compression,
      int num_workers);

  // The next round: `gradients` by rank, [n] f32 each; `sums` [n] f32 becomes
  // what every worker gets.
  absl::Status Step(std::span<const ConstBytes> gradients, Bytes sums);

 private:
  Replay() = default;
  absl::Status StepChunk(size_t index, std::span<const ConstBytes> gradients,
                         std::span<const ChunkWish> wishes, Bytes sums);

  BufferPool buffers_;
  EngineConfig config_;
  std::vector<std::unique_ptr<TensorCodec>> workers_;  // by rank
  std::vector<ChunkSum> sums_;                         // by chunk
  uint64_t step_ = 0;
};

}  // namespace telegrad::perf
