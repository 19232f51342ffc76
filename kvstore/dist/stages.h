#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "base/status_macros.h"
#include "compression/frame.h"
#include "kvstore/dist/reply_format.h"

namespace telegrad {

// How a chunk travels in one stage.
struct ChunkCoding {
  std::unique_ptr<PreparedCodec> codec;
  ReplyFormat format = ReplyFormat::kDense;
};

// A chunk's coding step by step, the same on the server and all workers: dense
// during the warm-up, then what was agreed two rounds before.
class Stages {
 public:
  static absl::StatusOr<Stages> Make(const TensorLayout& plan, size_t num_elems,
                                     const CompressionConfig& compression,
                                     const OptimizerConfig& optimizer) {
    Stages stages;
    const CodecTraits& traits = plan.codec->traits();
    ASSIGN_OR_RETURN(stages.own_.codec,
                     plan.codec->Prepare(num_elems, Device{}, plan.options));
    stages.own_.format = FormatOf(traits, compression, optimizer);
    if (traits.lossless) return stages;
    ASSIGN_OR_RETURN(const Codec* dense, FindCodec("none"));
    ASSIGN_OR_RETURN(stages.dense_.codec, dense->Prepare(num_elems, Device{}));
    stages.num_warmup_ = static_cast<uint64_t>(compression.warmup_steps);
    if (compression.starts_dense) {
      stages.in_force_ = {ChunkStage::kPaused, ChunkStage::kPaused};
    }
    return stages;
  }

  ChunkStage At(uint64_t step) const {
    return step < num_warmup_ ? ChunkStage::kDense : in_force_[step & 1];
  }
  // What was agreed for it, the warm-up left aside.
  ChunkStage AgreedAt(uint64_t step) const { return in_force_[step & 1]; }
  const ChunkCoding& Of(ChunkStage stage) const {
    return stage != ChunkStage::kCodec && dense_.codec != nullptr ? dense_
                                                                  : own_;
  }
  // The tensor's own codec.
  const ChunkCoding& own() const { return own_; }
  // Whether there is anything else than it.
  bool has_dense() const { return dense_.codec != nullptr; }
  // What the round of `step` agreed on, of the largest wish: dense for good
  // stays.
  ChunkStage Agreement(uint64_t step, ChunkStage wish) const {
    return AgreedAt(step) == ChunkStage::kDense ? ChunkStage::kDense : wish;
  }
  void Agree(uint64_t step, ChunkStage stage) { in_force_[step & 1] = stage; }

 private:
  ChunkCoding own_;
  ChunkCoding dense_;
  uint64_t num_warmup_ = 0;
  std::array<ChunkStage, 2> in_force_{ChunkStage::kCodec, ChunkStage::kCodec};
};

}  // namespace telegrad
