#pragma once

#include <bitset>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "compression/encode_many.h"
#include "kvstore/engine/codec/codings.h"
#include "kvstore/engine/codec/engine_config.h"
#include "kvstore/engine/codec/guard.h"
#include "kvstore/engine/codec/settings.h"

namespace telegrad {

// A chunk of a gradient, made small. `payload`, in host memory, is valid until
// the codec's next encoding; a lossless codec's is the gradient from where it
// lies, unless something in it had to be changed or copied.
struct EncodedChunk {
  ConstBytes payload;
  size_t num_nonfinite = 0;
  size_t first_nonfinite = 0;  // within the chunk
  // The policy is to stop: there is nothing to send.
  bool is_refused = false;
};

// A chunk's memory, the tensor's. On a device: what codecs write there, and
// where the host gets it; what they read of answers that are not dense.
struct ChunkMemory {
  Bytes residual = {};  // [n] f32, all 0; empty if no codec needs one
  Bytes momentum = {};  // [n] f32, all 0; empty if pushes have none
  Bytes result = {};    // an EncodeResult; this and the rest: on a device alone
  Bytes frame = {};
  Bytes host_result = {};
  Bytes host_frame = {};
  Bytes dense = {};  // [n] f32 of a small chunk, which goes along with others
  Bytes host_dense = {};
  Bytes answer = {};
  Bytes host_answer = {};
  // Memory that holds all of this, and other chunks' parts.
  const void* block = nullptr;
};

// One contributor's side of one chunk: makes it small, with all that is kept
// for this between steps (residual, codec's state, health, vetoes), and makes
// results large again. Knows no rank, key, wire or thread. One thread at a
// time. With a ChunkSum, for each round:
//   each contributor:  AgreeFirst once if NeedsScale, of ChunkSum::Propose;
//                      Encode; payload and Push() go to the sum
//   the sum:           Check and Note each Push(); Sum; Finish
//   each contributor:  Decode(result's record, payload, out); Agree
// On a device ChunkOnDevice encodes and decodes.
class ChunkCodec {
 public:
  // `config` lives at least as long. Gradients and outputs are of `dtype`, a
  // type of floats.
  static absl::StatusOr<ChunkCodec> Make(const TensorLayout& layout,
                                         const Chunk& chunk,
                                         const EngineConfig& config,
                                         Dtype dtype);
  // The caller's, before all else.
  void SetMemory(const ChunkMemory& memory);

  // In force in the round of `step`.
  ChunkSettings At(uint64_t step) const { return codings_.At(step); }
  // Whether the first scale has not been agreed yet: no Encode before.
  bool NeedsScale(uint64_t step) const { return At(step).scale == kNoScale; }
  void AgreeFirst(int16_t scale) { codings_.AgreeFirst(scale); }
  // `wish` is the tensor's; of a codec that was given up it becomes kDense.
  ChunkWish Wish(const ChunkWish& wish) const;
  // What goes with the payload of `step`; payload_bytes are left open.
  PushRecord Push(uint64_t step, const ChunkWish& wish) const;

  // grad [num_elems], in host memory. `source` tells contributors apart.
  absl::StatusOr<EncodedChunk> Encode(uint64_t step, uint64_t source,
                                      ConstBytes grad);

  // Bytes of a dense result or an initial value.
  size_t value_bytes() const { return 4 * chunk_.num_elems; }
  // Room for all results that are not dense.
  size_t max_reply_bytes() const {
    return codings_.MaxReplyBytes(config_->num_contributors);
  }
  // Whether `reply` and its size can be: for bytes from elsewhere, before
  // Decode. `is_value`: the initial value, not a round's result.
  absl::Status CheckReply(const ReplyRecord& reply, size_t num_bytes,
                          bool is_value) const;
  // Checks a record that goes without a result, as CheckReply.
  absl::Status CheckBareReply(const ReplyRecord& reply) const;
  // Whether a payload that passed CheckReply is one; Decode asks for itself.
  absl::Status CheckPayload(const ReplyRecord& reply, ConstBytes payload) const;
  // payload -> out [num_elems], in host memory; of a dense result that is there
  // already nothing.
  absl::Status Decode(const ReplyRecord& reply, ConstBytes payload, Bytes out);
  // After each round.
  void Agree(const ChunkSettings& next) { codings_.Agree(next); }

  const Codings& codings() const { return codings_; }
  // The mode whose codec encoded last; kPaused before.
  CodecMode encoded_in() const { return encoded_in_; }
  const Guard& guard() const { return guard_; }
  const Chunk& chunk() const { return chunk_; }
  Dtype dtype() const { return dtype_; }

 private:
  friend class ChunkOnDevice;
  friend struct SavedChunk;
  const Coding& Begin(uint64_t step);
  EncodeParams ParamsOf(const Coding& coding, uint64_t step,
                        uint64_t source) const;
  absl::StatusOr<bool> EncodeHalves(const PreparedCodec& codec,
                                    const EncodeParams& params, ConstBytes grad,
                                    Bytes out, EncodeResult* result,
                                    Stream stream);
  absl::StatusOr<EncodedChunk> EncodeDense(ConstBytes grad, Dtype dtype);
  EncodedChunk Seen(ConstBytes payload, const EncodeStats& stats) const;
  EncodedChunk SeenDense(ConstBytes grad) const;
  absl::Status CheckHealth(const PreparedCodec& codec, ConstBytes grad,
                           ConstBytes payload, float threshold);
  void TakeHealth();
  DecodeItem DecodeItemOf(const ReplyRecord& reply, ConstBytes payload,
                          Bytes floats) const;
  absl::Status DecodeTo(const ReplyRecord& reply, ConstBytes payload,
                        Bytes floats, Stream stream);

  Chunk chunk_;
  const EngineConfig* config_ = nullptr;
  Dtype dtype_ = Dtype::kFloat32;
  bool tries_halves_ = false;  // the codec may take them
  Codings codings_;
  ChunkMemory memory_;
  bool has_residual_ = false;  // `memory_.residual` holds what was not sent
  bool has_momentum_ = false;  // `memory_.momentum` has been used
  CodecState state_;           // state of the codec that encoded last
  CodecMode encoded_in_ = CodecMode::kPaused;
  Guard guard_;              // watches the codec that encoded last
  bool has_sample_ = false;  // what is encoded now is sampled
  std::bitset<kMaxCodecMode + 1> vetoed_;  // modes that were given up
  Buffer frame_;                           // what codecs write, on the host
  std::shared_ptr<Buffer> dense_;          // a changed copy of the gradient
};

// Saves and loads what the next rounds of a chunk's codec depend on, between
// rounds. Waits for the device on which the codec's memory is. DataLoss for a
// text of another chunk or codec.
struct SavedChunk {
  static absl::Status Save(const ChunkCodec& codec, StateWriter& writer);
  static absl::Status Load(ChunkCodec& codec, StateReader& reader);
  // The rest is of host memory.
  // With codecs of the same tensor in other chunks. A fresh one goes on with
  // what the chunks that share elements with it agreed and found out; a basis
  // is of all elements of a chunk, and begins anew where these are others.
  static void GoOn(std::span<const ChunkCodec* const> old, ChunkCodec& codec);
  // Adds what `old` holds back of the elements that both have.
  static void AddHeld(const ChunkCodec& old, ChunkCodec& codec);
  // What is held back; empty: nothing.
  static ConstBytes Held(const ChunkCodec& codec) {
    return codec.has_residual_ ? codec.memory_.residual : Bytes();
  }
  // Whether a round has left momentum.
  static bool HasMomentum(const ChunkCodec& codec) {
    return codec.has_momentum_;
  }
  // The codec of a mode that is not dense encodes from now on.
  static void Switch(ChunkCodec& codec, CodecMode mode);
};

}  // namespace telegrad
