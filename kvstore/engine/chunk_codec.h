#pragma once

#include <bitset>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvstore/engine/codings.h"
#include "kvstore/engine/engine_config.h"
#include "kvstore/engine/guard.h"
#include "kvstore/engine/settings.h"

namespace telegrad {

// A chunk of a gradient, made small. `payload` is valid until the codec's next
// Encode; a lossless codec's is the gradient from where it lies, unless
// something in it had to be changed.
struct EncodedChunk {
  ConstBytes payload;
  size_t num_nonfinite = 0;
  size_t first_nonfinite = 0;  // within the chunk
  // The policy is to stop: there is nothing to send.
  bool is_refused = false;
};

// One contributor's side of one chunk: makes it small, with all that is kept
// for this between steps (residual, codec's state, health, vetoes), and makes
// results large again. Knows no rank, key, wire or thread. One thread at a
// time. With a ChunkSum, for each round:
//   each contributor:  AgreeFirst once if NeedsScale, of ChunkSum::Propose;
//                      Encode; payload and Push() go to the sum
//   the sum:           Check and Note each Push(); Sum; Finish
//   each contributor:  Decode(result's record, payload, out); Agree
class ChunkCodec {
 public:
  // `residual` [num_elems] f32, all 0, is the caller's; empty if the layout has
  // no codec that needs one. `config` lives at least as long.
  static absl::StatusOr<ChunkCodec> Make(const TensorLayout& layout,
                                         const Chunk& chunk,
                                         const EngineConfig& config,
                                         Bytes residual);

  // In force in the round of `step`.
  ChunkSettings At(uint64_t step) const { return codings_.At(step); }
  // Whether the first scale has not been agreed yet: no Encode before.
  bool NeedsScale(uint64_t step) const { return At(step).scale == kNoScale; }
  void AgreeFirst(int16_t scale) { codings_.AgreeFirst(scale); }
  // `wish` is the tensor's; of a codec that was given up it becomes kDense.
  ChunkWish Wish(const ChunkWish& wish) const;
  // What goes with the payload of `step`; payload_bytes are left open.
  PushRecord Push(uint64_t step, const ChunkWish& wish) const;

  // grad [num_elems] f32. `source` tells contributors apart.
  absl::StatusOr<EncodedChunk> Encode(uint64_t step, uint64_t source,
                                      ConstBytes grad, Stream stream);

  // Bytes of a result in this mode, at most; of an initial value, dense.
  size_t ReplyBytes(CodecMode mode) const;
  size_t value_bytes() const { return 4 * chunk_.num_elems; }
  // Room for all results that are not dense.
  size_t max_reply_bytes() const;
  // Whether `reply` and its size can be: for bytes from elsewhere, before
  // Decode. `is_value`: the initial value, not a round's result.
  absl::Status CheckReply(const ReplyRecord& reply, size_t num_bytes,
                          bool is_value) const;
  // The same of a record that goes without a result.
  absl::Status CheckBareReply(const ReplyRecord& reply) const;
  // payload -> out [num_elems] f32; of a dense result that is there already
  // nothing.
  absl::Status Decode(const ReplyRecord& reply, ConstBytes payload, Bytes out,
                      Stream stream);
  // After each round.
  void Agree(const ChunkSettings& next) { codings_.Agree(next); }

  const Codings& codings() const { return codings_; }
  void DecidePacking(uint8_t packing) { codings_.DecidePacking(packing); }
  // The mode whose codec encoded last; kPaused before.
  CodecMode encoded_in() const { return encoded_in_; }
  const Guard& guard() const { return guard_; }
  const Chunk& chunk() const { return chunk_; }

 private:
  void Begin(CodecMode mode);
  absl::StatusOr<EncodedChunk> EncodeDense(ConstBytes grad, Stream stream);
  absl::Status CheckHealth(const PreparedCodec& codec, ConstBytes grad,
                           ConstBytes payload, float threshold, Stream stream);
  EncodedChunk Seen(ConstBytes payload, const EncodeStats& stats) const;

  Chunk chunk_;
  const EngineConfig* config_ = nullptr;
  Codings codings_;
  Bytes residual_;
  bool has_residual_ = false;  // `residual_` may hold what was not sent
  CodecState state_;           // of the codec that encoded last
  CodecMode encoded_in_ = CodecMode::kPaused;
  Guard guard_;                            // of that codec
  std::bitset<kMaxCodecMode + 1> vetoed_;  // modes that were given up
  Buffer frame_;                           // what codecs write
  std::shared_ptr<Buffer> dense_;          // a changed copy of the gradient
};

}  // namespace telegrad
