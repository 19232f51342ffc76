#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "compression/codec_spec.h"
#include "perf/huge_array.h"
#include "perf/team.h"

namespace telegrad::perf {

constexpr uint32_t kNumPayloads = 4;  // contributions that are summed

// A codec at work on an array as workers and servers use it: chunk by chunk,
// each with its own state. Chunks are independent: any number of threads may
// work on different ones.
class CodecChunks {
 public:
  static absl::StatusOr<std::unique_ptr<CodecChunks>> Make(
      const CodecSpec& spec, size_t num_chunks, size_t chunk_elems,
      double density);

  size_t num_elems() const { return chunks_.size() * codec_->num_elems(); }
  const PreparedCodec& codec() const { return *codec_; }
  // Means over what Make encoded: encoded bytes and codes that are not 0, per
  // element; what states hold beside residuals, bytes per element.
  double payload_bytes_per_element() const;
  double density() const;
  double memory_bytes_per_element() const;

  enum class Operation { kEncode, kDecode, kDecodeAdd, kSum, kReencode };
  // The loop over the chunks of a range; it begins at a chunk.
  RangeBody Loop(Operation operation);
  // BytePS's heap in place of a codec's top-k: a pair of index and value per
  // code that the codec sent.
  RangeBody HeapLoop();
  // MXNet's loop for the same codec, in its layout whatever the codec's packing
  // is; empty where it has none.
  RangeBody MxnetLoop(Operation operation);
  // The first error of any loop since the last call.
  absl::Status TakeError();

 private:
  struct Chunk {
    ConstBytes grad;
    CodecState workers[kNumPayloads];
    ReencodeState server;
    Buffer payloads[kNumPayloads];
    size_t payload_bytes[kNumPayloads] = {};
    EncodeStats stats;  // the first payload's
    uint64_t step = 0;
    Buffer encoded;
    Bytes out;   // [n] f32
    Buffer sum;  // what SumCodes makes
    absl::Status error;
  };

  CodecChunks() = default;
  absl::Status FillPayloads(Chunk& chunk, uint64_t index);
  EncodeParams Params(const Chunk& chunk, uint64_t index) const;
  absl::Status Do(Operation operation, Chunk& chunk, uint64_t index) const;
  void MxnetEncode(size_t chunk);
  void MxnetDecode(size_t chunk);
  // The residual of a chunk at one worker.
  float* Residual(uint32_t worker, size_t chunk) const;

  std::unique_ptr<PreparedCodec> codec_;
  float threshold_ = 0;
  float bit_threshold_ = 0;  // 1bit's
  HugeArray grad_;
  HugeArray residuals_[kNumPayloads];  // empty without error feedback
  HugeArray out_;
  HugeArray mxnet_codes_;
  std::vector<Chunk> chunks_;
};

}  // namespace telegrad::perf
