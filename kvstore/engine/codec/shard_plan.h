#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kvstore/engine/codec/codec_policy.h"
#include "kvstore/options.h"
#include "topology/cost_model.h"

namespace telegrad {

// Bytes before the payload of each frame: ps/wire.h.
constexpr size_t kFrameHeaderBytes = 64;

// A run of a tensor's elements that travels as one frame. Borders lie on
// 32-element groups within a shard, shards on 16-element words.
struct Chunk {
  Key key = 0;
  uint32_t index = 0;  // within the tensor
  size_t begin = 0;    // first element
  size_t num_elems = 0;
  int server = 0;
};

struct CodecSetting {
  const Codec* codec = nullptr;
  CodecOptions options = {};
  ThresholdSpec threshold = {};  // when the codec needs one
};

struct TensorLayout {
  std::vector<CodecSetting> codecs = {};  // its own, then alternatives
  std::optional<CodecSetting> rows = {};  // codec of single rows; none: floats
  std::string setting = {};               // its own codec's text
  bool has_rule = false;
  std::string reason = {};         // why this codec
  std::vector<Chunk> chunks = {};  // by index, covering the tensor
  RateMultipliers rates = {};
};

// Elements of a tensor per server, in server order (0 for servers without a
// share), where they have `loads` elements so far. A part is no smaller than
// kMinPartElems (topology/cost_model.h), if the tensor is not; the P parts go
// to the servers with the least, in words of 16 elements: part i =
// round(c/P*(i+1)) - round(c/P*i) with c = ceil(n/16), which is MXNet's rule
// for P servers. (MXNet splits from a million elements on, and puts others on
// server key * 9973 mod S: most of Inception-v3 on one of two.)
// Source: src/kvstore/kvstore_dist.h `EncodeCompressedKey`.
std::vector<size_t> ShardSizes(size_t num_elems, std::span<const size_t> loads);

// Deals tensors out over servers, as they come. All members compute the same
// from the same tensors in the same order. One thread.
class ShardPlanner {
 public:
  // InvalidArgument for no server or a codec that does not exist. chunk_elems,
  // a tensor's too, is rounded up to a multiple of 32.
  static absl::StatusOr<ShardPlanner> Make(
      int num_servers, size_t chunk_elems,
      const CompressionConfig& compression);
  // `tensor` gets the next key; an empty one has no chunks. InvalidArgument for
  // a codec of its own that does not exist.
  absl::StatusOr<TensorLayout> Add(const TensorSpec& tensor);

 private:
  ShardPlanner(int num_servers, size_t chunk_elems,
               const CompressionConfig& compression, CodecPolicy policy);

  size_t chunk_elems_;
  ThresholdSpec threshold_;
  CodecPolicy policy_;
  std::vector<size_t> loads_;  // elements, by server
  Key next_key_ = 0;
};

// All of a list, from an empty planner.
absl::StatusOr<std::vector<TensorLayout>> MakeShardPlan(
    std::span<const TensorSpec> tensors, int num_servers, size_t chunk_elems,
    const CompressionConfig& compression);

}  // namespace telegrad
