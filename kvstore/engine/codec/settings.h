#pragma once

#include <cstddef>
#include <cstdint>

#include "compression/threshold.h"
#include "kvstore/engine/codec/reply_format.h"
#include "kvstore/options.h"

// What contributors and the sum of a chunk tell each other beside the payload:
// small records that any header can carry.
namespace telegrad {

// How a chunk travels in a round: by its tensor's codec; dense for now, because
// the codec does not pay; dense: during the warm-up, and where the codec's
// health check has given up on the codec that is wished; or by the first,
// second, ... of the tensor's alternative codecs. Of different wishes, kDense
// counts if it is among them, else kPaused. Values are bytes of the wire.
enum class CodecMode : uint8_t {
  kCodec = 0,
  kPaused = 1,
  kDense = 2,
  kAlternative = 3,  // and what follows
};
constexpr uint8_t kMaxCodecMode = 2 + kMaxAlternatives;

constexpr bool IsDense(CodecMode mode) {
  return mode == CodecMode::kPaused || mode == CodecMode::kDense;
}
// The mode in which the tensor's codec of this index is used.
constexpr CodecMode ModeOfCodec(size_t index) {
  return static_cast<CodecMode>(
      index == 0 ? size_t{0}
                 : static_cast<size_t>(CodecMode::kAlternative) + index - 1);
}
// What two wishes amount to.
constexpr CodecMode Combine(CodecMode a, CodecMode b) {
  if (a == b) return a;
  return a == CodecMode::kDense || b == CodecMode::kDense ? CodecMode::kDense
                                                          : CodecMode::kPaused;
}

// What is agreed about a chunk, in force from a step on. Rounds of even and of
// odd steps have one each: what a round agrees on is in force two rounds later,
// so that no round waits for an agreement.
struct ChunkSettings {
  uint64_t from_step = 0;
  CodecMode mode = CodecMode::kCodec;
  int16_t scale = kFixedScale;  // kNoScale: not agreed yet
};

// What a contributor would like to have two rounds later.
struct ChunkWish {
  CodecMode mode = CodecMode::kCodec;
  int16_t scale = kNoScale;
};

// What a payload is made of, as headers say it.
struct PayloadFormat {
  uint8_t codec = 0;
  uint8_t codec_version = 0;
  uint8_t packing = 0;
  ReplyFormat reply = ReplyFormat::kDense;
  bool operator==(const PayloadFormat&) const = default;
};

// Goes with an encoded chunk.
struct PushRecord {
  uint64_t step = 0;
  size_t payload_bytes = 0;
  PayloadFormat format = {};
  ChunkSettings settings = {};  // in force
  ChunkWish wish = {};
};

// Goes with a round's result.
struct ReplyRecord {
  ReplyFormat format = ReplyFormat::kDense;
  ChunkSettings settings = {};  // in force in the round
  ChunkSettings agreed = {};    // in force two rounds later
};

}  // namespace telegrad
