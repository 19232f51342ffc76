#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvstore/engine/codec/codings.h"
#include "kvstore/engine/codec/engine_config.h"
#include "kvstore/engine/codec/settings.h"
#include "kvstore/optimizer.h"

namespace telegrad {

// A round's result, or a chunk's value.
struct ChunkResult {
  std::shared_ptr<Buffer> buffer = nullptr;  // owns `payload`
  ConstBytes payload = {};
  ReplyRecord record = {};
};

// A chunk's weights and state under an optimizer in the store. One thread at a
// time.
struct ChunkWeights {
  std::shared_ptr<Buffer> value = nullptr;  // null: none yet
  RateMultipliers rates = {};
  OptimizerState state = {};
};

// What becomes of one chunk's payloads: exact sums of codes, sums encoded again
// with a residual of their own, sums of floats in contributors' order, or
// weights after an optimizer's step; and what the chunk's contributors agree
// on. Knows no rank, wire or waiting: see ChunkCodec for a round of both. One
// thread at a time.
class ChunkSum {
 public:
  // `config` lives at least as long; its buffers hold results.
  static absl::StatusOr<ChunkSum> Make(const TensorLayout& layout,
                                       const Chunk& chunk,
                                       const EngineConfig& config);

  // These are about the open round.
  uint64_t step() const { return step_; }
  ChunkSettings settings() const { return codings_.At(step_); }
  const PreparedCodec& codec() const { return *coding().codec; }
  PayloadFormat format() const { return coding().payload_format(); }

  // A first wish for a scale, of each contributor once; true with the last:
  // scale() is what all get. InvalidArgument if none was expected.
  absl::StatusOr<bool> Propose(int contributor, int16_t scale);
  // A scale is being agreed on, and this one has proposed none.
  bool LacksProposalOf(int contributor) const {
    return num_proposed_ > 0 && num_proposed_ < has_proposed_.size() &&
           !has_proposed_[static_cast<size_t>(contributor)];
  }
  int16_t scale() const { return settings().scale; }

  // Whether a payload with this record can be one of the open round's, its step
  // and settings left aside; whether these fit, too.
  absl::Status CheckFormat(const PushRecord& push) const;
  absl::Status CheckSettings(const PushRecord& push) const;
  // Whether it can be one of any round's, by the settings that its record says;
  // and the codec of these. Any thread, whatever another one does.
  absl::Status CheckAnyRound(const PushRecord& push) const;
  const PreparedCodec& CodecOf(const PushRecord& push) const {
    return *codings_.Of(push.settings.mode).codec;
  }
  // A payload that passed CheckAnyRound and its codec's Validate goes into the
  // next Sum, beside that one's own: for an optimizer on the sum's side, whose
  // answers say nothing of codes.
  absl::Status Hold(const PushRecord& push, ConstBytes payload);
  // Something that was given to Hold is in no round yet.
  bool has_held() const { return has_held_; }
  // Takes in the wish that goes with a payload that passed both.
  void Note(const ChunkWish& wish);

  // The result of the open round: payloads by contributor. `first` is who owns
  // the first one, if that may be overwritten.
  absl::StatusOr<ChunkResult> Sum(std::span<const ConstBytes> payloads,
                                  const std::shared_ptr<Buffer>& first,
                                  Stream stream);
  // Opens the next round, with what this one has agreed on.
  void Finish(const ReplyRecord& record);

  // Steps the same weights as `other` from now on, alone with both.
  void ShareWeights(const ChunkSum& other) { weights_ = other.weights_; }
  ChunkWeights& weights() { return *weights_; }
  // The weights, for an optimizer; between rounds.
  void SetValue(std::shared_ptr<Buffer> value);

  // Between rounds: all that the next ones depend on but the weights, and goes
  // on with it. DataLoss where it is of another chunk or codec.
  std::string Save() const;
  absl::Status Load(absl::string_view text);

  // A fresh one goes on with what sums of the same tensor in other chunks, that
  // share elements with it, agreed and, if `takes_held`, hold back: bit for
  // bit, but for integers in other units. DataLoss where that is of several
  // codecs.
  absl::Status GoOn(std::span<const ChunkSum* const> old, bool takes_held);
  // sum [num_elems] f32: adds what is held back, and holds it no more.
  absl::Status ReleaseResidual(Bytes sum, Stream stream);

  const Chunk& chunk() const { return chunk_; }

 private:
  const Coding& coding() const { return codings_.Of(settings().mode); }
  float Threshold() const { return coding().Threshold(scale()); }
  absl::Status TakeHeld(std::span<const ChunkSum* const> old);
  absl::Status SumGradients(std::span<const ConstBytes> payloads, Stream stream,
                            ChunkResult& result);
  absl::Status UpdateWeights(std::span<const ConstBytes> payloads,
                             Stream stream, ChunkResult& result);

  Chunk chunk_;
  const EngineConfig* config_ = nullptr;
  Codings codings_;
  uint64_t step_ = 0;
  ChunkWish wish_;  // all that were noted together
  bool has_wish_ = false;
  std::vector<bool> has_proposed_;
  size_t num_proposed_ = 0;
  ReencodeState reencode_;
  // Mode of the codec that made reencode_.
  CodecMode reencoded_in_ = CodecMode::kCodec;
  std::shared_ptr<ChunkWeights> weights_;  // update_on server
  Buffer held_;                            // [n] f32, once there is some
  bool has_held_ = false;
};

}  // namespace telegrad
