#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "compression/frame.h"
#include "kvstore/dist/reply_format.h"

namespace telegrad {

// How a chunk travels in one stage.
struct ChunkCoding {
  std::unique_ptr<PreparedCodec> codec;
  // With another packing, while it is open which one is used.
  std::unique_ptr<PreparedCodec> other = {};
  ReplyFormat format = ReplyFormat::kDense;
  CodecSetting setting = {};
  bool uses_scale = false;
  float fixed_threshold = 0;  // unless uses_scale

  float Threshold(int16_t scale) const {
    return uses_scale ? ScaleThreshold(scale) : fixed_threshold;
  }
  // Ends the choice, if there is one, for this packing, if that is one of them.
  void DecidePacking(uint8_t packing) {
    if (other == nullptr) return;
    if (packing == other->packing()) std::swap(codec, other);
    if (packing == codec->packing()) other = nullptr;
  }
};

inline bool IsDenseStage(ChunkStage stage) {
  return stage == ChunkStage::kPaused || stage == ChunkStage::kDense;
}
// The stage in which the tensor's codec of this index is used.
inline ChunkStage StageOfCodec(size_t index) {
  return static_cast<ChunkStage>(
      index == 0 ? size_t{0}
                 : static_cast<size_t>(ChunkStage::kAlternative) + index - 1);
}
// What two wishes amount to.
inline ChunkStage Combine(ChunkStage a, ChunkStage b) {
  if (a == b) return a;
  return a == ChunkStage::kDense || b == ChunkStage::kDense
             ? ChunkStage::kDense
             : ChunkStage::kPaused;
}

// A chunk's coding step by step, the same on the server and all workers: dense
// during the warm-up, then what was agreed two rounds before.
class Stages {
 public:
  static absl::StatusOr<Stages> Make(const TensorLayout& plan, size_t num_elems,
                                     const CompressionConfig& compression,
                                     const OptimizerConfig& optimizer) {
    Stages stages;
    for (const CodecSetting& setting : plan.codecs) {
      ASSIGN_OR_RETURN(stages.codings_.emplace_back(),
                       MakeCoding(setting, num_elems, compression, optimizer));
    }
    if (std::all_of(plan.codecs.begin(), plan.codecs.end(),
                    [](const CodecSetting& setting) {
                      return setting.codec->traits().lossless;
                    })) {
      return stages;
    }
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
  // Whether it is one of this chunk's: before Of, for bytes from a network.
  bool Knows(ChunkStage stage) const {
    return IsDenseStage(stage) || IndexOf(stage) < codings_.size();
  }
  const ChunkCoding& Of(ChunkStage stage) const {
    if (!IsDenseStage(stage)) return codings_[IndexOf(stage)];
    return has_dense() ? dense_ : codings_[0];
  }
  // The tensor's codecs, its own first.
  const std::vector<ChunkCoding>& codings() const { return codings_; }
  bool has_open_packing() const {
    return std::any_of(
        codings_.begin(), codings_.end(),
        [](const ChunkCoding& coding) { return coding.other != nullptr; });
  }
  void DecidePacking(uint8_t packing) {
    for (ChunkCoding& coding : codings_) coding.DecidePacking(packing);
  }
  // Whether there is anything lossy.
  bool has_dense() const { return dense_.codec != nullptr; }
  // Whether a scale is agreed on, for any of the codecs.
  bool uses_scale() const {
    return std::any_of(
        codings_.begin(), codings_.end(),
        [](const ChunkCoding& coding) { return coding.uses_scale; });
  }
  // What the round of `step` agreed on, of its wish: a dense round comes
  // between two codecs.
  ChunkStage Agreement(uint64_t step, ChunkStage wish) const {
    const ChunkStage before = AgreedAt(step + 1);
    const bool is_change =
        !IsDenseStage(wish) && !IsDenseStage(before) && wish != before;
    return is_change ? ChunkStage::kPaused : wish;
  }
  void Agree(uint64_t step, ChunkStage stage) { in_force_[step & 1] = stage; }

 private:
  static size_t IndexOf(ChunkStage stage) {
    constexpr auto kFirst = static_cast<size_t>(ChunkStage::kAlternative);
    const auto value = static_cast<size_t>(stage);
    return value < kFirst ? 0 : value - kFirst + 1;
  }
  static absl::StatusOr<ChunkCoding> MakeCoding(
      const CodecSetting& setting, size_t num_elems,
      const CompressionConfig& compression, const OptimizerConfig& optimizer) {
    const CodecTraits& traits = setting.codec->traits();
    ChunkCoding coding{.codec = nullptr,
                       .other = nullptr,
                       .format = FormatOf(traits, compression, optimizer),
                       .setting = setting,
                       .uses_scale = UsesScale(traits, setting.threshold),
                       .fixed_threshold = FixedThreshold(
                           setting.threshold, compression.batch_size)};
    ASSIGN_OR_RETURN(coding.codec, setting.codec->Prepare(num_elems, Device{},
                                                          setting.options));
    if (setting.is_packing_open) {
      CodecOptions options = setting.options;
      options.packing = 1;
      ASSIGN_OR_RETURN(coding.other,
                       setting.codec->Prepare(num_elems, Device{}, options));
    }
    return coding;
  }

  std::vector<ChunkCoding> codings_;
  ChunkCoding dense_;
  uint64_t num_warmup_ = 0;
  std::array<ChunkStage, 2> in_force_{ChunkStage::kCodec, ChunkStage::kCodec};
};

}  // namespace telegrad
