#pragma once

#include <cstddef>
#include <cstdint>

#include "compression/codec.h"
#include "kvstore/engine/codec/shard_plan.h"
#include "kvstore/options.h"

namespace telegrad {

// In what form a round's result travels back: decided by the codec and the
// job's settings, the same on both sides. The numbers are those of ReplyMode.
enum class ReplyFormat : uint8_t {
  kDense = 0,     // [n] f32: sums, or weights
  kSum = 1,       // exact sums of codes, packed
  kReencode = 2,  // the codec's own codes, with the server's quantum
};

inline const char* ToString(ReplyFormat format) {
  return ToString(static_cast<ReplyMode>(format));
}

inline ReplyFormat FormatOf(const CodecTraits& traits,
                            const CompressionConfig& compression,
                            const OptimizerConfig& optimizer) {
  if (optimizer.update_on == UpdateOn::kServer || traits.lossless) {
    return ReplyFormat::kDense;
  }
  switch (compression.reply) {
    case ReplyMode::kDense:
      return ReplyFormat::kDense;
    case ReplyMode::kSum:
      return traits.summable ? ReplyFormat::kSum : ReplyFormat::kDense;
    case ReplyMode::kAuto:
      return traits.summable ? ReplyFormat::kSum : ReplyFormat::kReencode;
    case ReplyMode::kReencode:
      return ReplyFormat::kReencode;
  }
  return ReplyFormat::kDense;
}

inline size_t ReplyBytes(const PreparedCodec& codec, ReplyFormat format,
                         int num_workers) {
  switch (format) {
    case ReplyFormat::kDense:
      return 4 * codec.num_elems();
    case ReplyFormat::kSum:
      return codec.sum_bytes(static_cast<uint32_t>(num_workers));
    case ReplyFormat::kReencode:
      return codec.max_reencoded_bytes(static_cast<uint32_t>(num_workers));
  }
  return 0;
}

// Whether the codec's threshold is agreed step by step.
inline bool UsesScale(const CodecTraits& traits,
                      const ThresholdSpec& threshold) {
  return traits.needs_threshold && FollowsGradient(threshold);
}

// What tells chunks apart (EncodeParams).
inline uint64_t StreamOf(const Chunk& chunk) {
  return uint64_t{chunk.key} << 32 | chunk.index;
}

}  // namespace telegrad
