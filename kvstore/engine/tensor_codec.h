#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kvstore/engine/chunk_codec.h"

namespace telegrad {

// One contributor's side of one tensor: its chunks' codecs, the residual that
// they share out, and what is wished for all of them.
class TensorCodec {
 public:
  static absl::StatusOr<std::unique_ptr<TensorCodec>> Make(
      const TensorSpec& spec, const TensorLayout& layout,
      const EngineConfig& config);

  const TensorSpec& spec() const { return spec_; }
  std::vector<ChunkCodec>& chunks() { return chunks_; }
  const std::vector<ChunkCodec>& chunks() const { return chunks_; }
  bool uses_scale() const { return chunks_[0].codings().uses_scale(); }
  size_t num_codecs() const { return chunks_[0].codings().codecs().size(); }

  // The codec of this index for all chunks, -1: dense. InvalidArgument if there
  // is none. Any thread.
  absl::Status SetCodec(int codec);
  // What to give ChunkCodec::Wish in this round, before any chunk of it is
  // encoded: the scale is proposed from the whole gradient.
  ChunkWish Wish(ConstBytes grad, Stream stream) const;
  void DecidePacking(uint8_t packing);

  void CountNonFinite(size_t count) {
    num_nonfinite_ += static_cast<int64_t>(count);
  }
  // After `rounds` rounds, while none runs.
  TensorReport Report(uint64_t rounds) const;

 private:
  TensorCodec() = default;
  const Coding& ScaledCoding(CodecMode wish) const;

  TensorSpec spec_;
  std::string setting_;  // as in TensorReport
  bool has_rule_ = false;
  std::string reason_;
  Buffer residual_;
  std::vector<ChunkCodec> chunks_;
  std::atomic<CodecMode> wish_{CodecMode::kCodec};  // the caller's
  std::atomic<int64_t> num_nonfinite_{0};
};

}  // namespace telegrad
