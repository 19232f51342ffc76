#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "kvstore/dist/guard.h"
#include "kvstore/dist/shard_plan.h"
#include "kvstore/dist/stages.h"

namespace telegrad::perf {

// What the rounds of one tensor must give, from the gradients of all workers:
// by the codec's own methods, chunk after chunk in one thread, without frames,
// servers or a network. The same bits as a store's (docs/architecture.md,
// "Determinism"). It has the store's own shard plan, stages, proposals of
// scales and CPU kernels, and so does not see what is wrong in these; it does
// see what is in frames, headers, checks, routing, threads, the order of
// arrival, and what workers and servers keep between rounds.
class Replay {
 public:
  // `layout` is the tensor's in the job (MakeShardPlan).
  static absl::StatusOr<Replay> Make(const TensorLayout& layout,
                                     const CompressionConfig& compression,
                                     int num_workers);

  // The next round: `gradients` by rank, [n] f32 each; `sums` [n] f32 becomes
  // what every worker gets.
  absl::Status Step(std::span<const ConstBytes> gradients, Bytes sums);

 private:
  // One worker's, of one chunk.
  struct Encoder {
    Bytes residual = {};  // a view of the tensor's
    CodecState state = {};
    Guard guard = {};
    bool has_residual = false;  // `residual` may hold what was not sent
    bool has_given_up = false;
    Buffer payload = {};
  };
  struct ChunkReplay {
    Chunk plan;
    Stages stages = {};
    std::vector<Encoder> encoders = {};  // by rank
    ReencodeState server = {};
  };

  Replay() = default;
  absl::Status AddChunk(const Chunk& plan, const TensorLayout& layout,
                        const CompressionConfig& compression);
  int16_t ScaleWish(std::span<const ConstBytes> gradients) const;
  absl::Status StepChunk(std::span<const ConstBytes> gradients, Bytes sums,
                         ChunkReplay& chunk);
  absl::StatusOr<ConstBytes> Encode(ConstBytes grad, uint64_t worker,
                                    ChunkReplay& chunk);
  absl::Status AskGuard(const PreparedCodec& codec, float threshold,
                        ConstBytes grad, ConstBytes payload,
                        Encoder& encoder) const;
  static ConstBytes EncodeDense(ConstBytes grad, Encoder& encoder);
  absl::Status Answer(const std::vector<ConstBytes>& payloads, Bytes out,
                      ChunkReplay& chunk);
  absl::Status AnswerCodes(const std::vector<ConstBytes>& payloads, Bytes out,
                           ChunkReplay& chunk);
  float Threshold(const ChunkCoding& coding) const {
    return coding.Threshold(scales_[step_ & 1]);
  }

  std::vector<Buffer> residuals_;  // by rank, [n] f32 or nothing
  std::vector<ChunkReplay> chunks_;
  std::array<int16_t, 2> scales_ = {};  // of step & 1
  bool has_guard_ = true;
  uint64_t step_ = 0;
};

}  // namespace telegrad::perf
