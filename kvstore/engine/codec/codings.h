#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kvstore/engine/codec/engine_config.h"
#include "kvstore/engine/codec/settings.h"
#include "kvstore/engine/codec/shard_plan.h"
#include "kvstore/engine/state/codec_state.h"

namespace telegrad {

// How a chunk travels in one mode.
struct Coding {
  std::unique_ptr<PreparedCodec> codec;
  ReplyFormat format = ReplyFormat::kDense;
  CodecSetting setting = {};
  bool uses_scale = false;
  float fixed_threshold = 0;  // unless uses_scale

  float Threshold(int16_t scale) const {
    return uses_scale ? ScaleThreshold(scale) : fixed_threshold;
  }
  // What codecs' Reencode takes.
  int16_t UnitScale(int16_t scale) const { return uses_scale ? scale : 0; }
  PayloadFormat payload_format() const;
};

// A chunk's codecs, prepared, and what is agreed about it: the same in all that
// contribute to its sum and in the sum. Dense during the warm-up, then what was
// agreed two rounds before. One thread.
class Codings {
 public:
  // `device` is the codecs'.
  static absl::StatusOr<Codings> Make(const TensorLayout& layout,
                                      size_t num_elems,
                                      const EngineConfig& config,
                                      Device device);

  // In force in the round of `step`.
  ChunkSettings At(uint64_t step) const;
  // The warm-up left aside.
  ChunkSettings AgreedAt(uint64_t step) const { return in_force_[step & 1]; }
  // The first scale, for all steps.
  void AgreeFirst(int16_t scale);
  // What the round of `step` agrees on, of what all wish together: a dense
  // round comes between two codecs.
  ChunkSettings Next(uint64_t step, const ChunkWish& wish) const;
  void Agree(ChunkSettings next);
  // Goes on with what others of this tensor have agreed, chunk by chunk:
  // `first`, then more where a chunk shares elements with several.
  void Follow(const Codings& first) { in_force_ = first.in_force_; }
  void FollowToo(const Codings& other);
  // What is agreed; and goes on with it. DataLoss for a mode that it does not
  // know.
  void Save(StateWriter& writer) const;
  absl::Status Load(StateReader& reader);

  // Whether it is one of this chunk's: before Of, for bytes from a network.
  bool Knows(CodecMode mode) const {
    return IsDense(mode) || IndexOf(mode) < codecs_.size();
  }
  const Coding& Of(CodecMode mode) const {
    if (!IsDense(mode)) return codecs_[IndexOf(mode)];
    return has_dense() ? dense_ : codecs_[0];
  }
  // The tensor's codecs, its own first.
  const std::vector<Coding>& codecs() const { return codecs_; }
  // The most that an encoder of a lossy codec writes, and that a result is
  // which is not dense.
  size_t MaxFrameBytes() const;
  size_t MaxReplyBytes(int num_contributors) const;
  // Whether there is anything lossy.
  bool has_dense() const { return dense_.codec != nullptr; }
  // Whether a scale is agreed on, for any of the codecs.
  bool uses_scale() const { return uses_scale_; }

 private:
  static size_t IndexOf(CodecMode mode);

  std::vector<Coding> codecs_;
  Coding dense_;
  bool uses_scale_ = false;
  uint64_t num_warmup_ = 0;
  std::array<ChunkSettings, 2> in_force_{};  // settings of a step, by step & 1
};

}  // namespace telegrad
