#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "compression/codec.h"

namespace telegrad {

// Elements of an encode of which only the call takes time.
inline constexpr size_t kTinyElems = 256;
// The threshold that `auto` gives standard normal gradients; 0 where a codec
// has none.
float BenchThreshold(const CodecTraits& traits);

// One codec on the gradients of a step, chunk by chunk as a store has them, and
// as after many steps: what workers and servers hold back, and the lists that
// they send, are those of a steady state. Gradients are standard normal, others
// in each step, and repeat after 2^16 elements, which no branch predictor
// learns.
class CodecBench {
 public:
  struct Shape {
    size_t num_elems = 0;  // a multiple of chunk_elems
    size_t chunk_elems = 0;
    uint32_t workers = 1;
  };
  // Takes the first steps. Errors are the codec's.
  static absl::StatusOr<std::unique_ptr<CodecBench>> Make(
      const Codec& codec, const CodecOptions& options, const Shape& shape);

  // What is done to all chunks of a step. Whatever comes from a network is
  // validated before, as a store does.
  absl::Status Encode();
  absl::Status Decode();
  absl::Status DecodeAdd();  // one worker's payloads
  absl::Status Sum();        // all workers' codes
  absl::Status DecodeSum();  // after Sum
  absl::Status Reencode();
  absl::Status ReencodeTwice();  // twice as many workers' codes

  // The codec, prepared for a chunk.
  const PreparedCodec& codec() const { return *codec_; }
  // Bits per element of what is sent.
  double payload_bits() const;

 private:
  // What a chunk has of its own, at its worker and at its server.
  struct Chunk {
    size_t begin = 0;
    CodecState state;
    Buffer frame;
    size_t frame_bytes = 0;
    std::vector<Buffer> sent;  // in turns
    Buffer sum;
    ReencodeState reencode;
    ReencodeState reencode_twice;
  };

  CodecBench(const Shape& shape, std::unique_ptr<PreparedCodec> codec);
  absl::Status SettleResidual(const Codec& codec, const CodecOptions& options);
  absl::Status MakePayloads();
  absl::Status SettleReencode();
  void Sample(ConstBytes grad, Bytes residual);
  absl::Status Reencode(uint32_t count, ReencodeState Chunk::*state);
  template <typename Work>
  absl::Status ForEachChunk(const Work& work);

  ConstBytes PayloadOf(const Chunk& chunk, size_t worker = 0) const {
    return chunk.sent[(turn_ + worker) % chunk.sent.size()].view();
  }
  absl::StatusOr<std::vector<ConstBytes>> ValidPayloads(const Chunk& chunk,
                                                        uint32_t count) const;
  ConstBytes GradientAt(size_t begin, size_t num_elems) const;
  Bytes OutOf(const Chunk& chunk);

  const Shape shape_;
  const std::unique_ptr<PreparedCodec> codec_;
  const Buffer grad_;  // gradients of all steps
  Buffer residual_;
  Buffer out_;
  Buffer reply_;  // a server's, of which it soon has another
  std::vector<Chunk> chunks_;
  size_t turn_ = 0;         // counts turns of payloads
  double mean_square_ = 0;  // the last sample's
  EncodeParams params_;
};

}  // namespace telegrad
