#pragma once

#include <cstddef>
#include <cstdint>

#include "base/stream.h"
#include "kernels/block.h"
#include "kernels/encode_stats.h"
#include "kernels/radix.h"
#include "kernels/two_bit.h"

// Many arrays in one launch, as the arrays of a step are too small for one
// each. Only GPUs have these; the results are those of the operations for one
// array. Descriptions lie in memory of the device, and are read there.
namespace telegrad::kernels {

// What an encoder left: compression's EncodeResult.
struct SpanResult {
  uint64_t encoded_bytes = 0;
  EncodeStats stats = {};
};

// What the elements of a gradient or of a result are.
enum class GradFormat : uint8_t { kFloat32, kFp16, kBf16 };

// One array, as the operation for one takes it.
struct EncodeSpan {
  const void* grad = nullptr;
  float* residual = nullptr;
  float* momentum = nullptr;  // sparse encoders clear it where they send
  uint8_t* codes = nullptr;
  SpanResult* result = nullptr;  // is set, not added to
  uint64_t num_elems = 0;        // at least 1
  uint64_t encoded_bytes = 0;    // the result's
  float threshold = 0;           // shared_quantize: the quantum
  uint32_t first_tile = 0;  // the array's first among all tiles of the batch
  // Sparse encoders' ThresholdScratch or TopKScratch, and for top-k what
  // HowManyOf takes, and SampleRank of its sample.
  void* scratch = nullptr;
  uint32_t k = 0;
  uint32_t sample_rank = 0;
  bool is_sampled = false;
  GradFormat format = GradFormat::kFloat32;  // gradient's
  // For a health check: [3][ceil(num_elems / sample_stride)], of elements 0,
  // sample_stride and so on the gradient's, the residual's and what encoding
  // makes of that. Null: none.
  float* samples = nullptr;
  uint64_t sample_stride = 1;
};

// Every array is cut into tiles of `tile_elems` elements, the last as it is,
// and each tile is one thread block's.
struct EncodeBatch {
  const EncodeSpan* spans = nullptr;
  const uint32_t* span_of_tile = nullptr;  // [num_tiles]
  uint32_t num_tiles = 0;
  uint32_t tile_elems = 0;
  EncodeStats* tile_stats = nullptr;  // [num_tiles], for the launch alone
  uint32_t* tickets = nullptr;        // one for each span; 0 before and after
  NonFinite nonfinite = NonFinite::kZero;
  // Every gradient and residual is aligned to 16 bytes, all codes to 4 (fp16
  // and bf16: 8).
  bool is_aligned = false;
  // The format for block_sign (the block alone), quantize, shared_quantize (the
  // bits).
  BlockFormat format = {};
};

// Whole blocks and words of every code but those that have a scale per block:
// there a tile is a whole number of blocks. Sparse encoders: kSparseTile.
constexpr uint32_t kBatchTile = 10240;

// One launch; of sparse encoders a few, as many for any number of arrays.
using EncodeManyFn = void(const EncodeBatch& batch, Stream stream);

// One array of codes, as the decoder for one takes it.
struct DecodeSpan {
  const uint8_t* codes = nullptr;
  void* out = nullptr;      // its elements are of the batch's format
  uint64_t num_elems = 0;   // at least 1
  float threshold = 0;      // shared_decode: the quantum
  float scale = 1;          // what is decoded is multiplied by it
  uint32_t first_tile = 0;  // the array's first among all tiles of the batch
  uint64_t num_bytes = 0;   // size of `codes`, for lists
  // drawn_decode: strata; top_decode: what is sent of a whole block;
  // low_rank_decode: the rank.
  uint32_t k = 0;
  uint64_t cols = 0;  // low_rank_decode: LowRankShape's
};

// Whole blocks of every code but radix, whose tiles are the most blocks of
// codes, or of sums, that they have room for.
constexpr uint32_t kDecodeTile = 8192;
constexpr uint32_t kRadixTile = kDecodeTile / kRadixBlock * kRadixBlock;
constexpr uint32_t RadixSumTile(uint32_t num_frames) {
  const size_t block = SumBlock(DigitGroupFor(num_frames));
  return static_cast<uint32_t>(kDecodeTile / block * block);
}

// A tile of `tile_elems` elements is one thread block's.
struct DecodeBatch {
  const DecodeSpan* spans = nullptr;
  const uint32_t* span_of_tile = nullptr;  // [num_tiles]
  uint32_t num_tiles = 0;
  uint32_t num_frames = 0;  // in packed sums; 0: these are no sums
  // Every output to four of its elements, all codes to 8 bytes.
  bool is_aligned = false;
  // For block_decode, block_sign_decode (the block) and shared_decode (the bits
  // of what is decoded, and whether codes are odd).
  BlockFormat format = {};
  uint32_t tile_elems = kDecodeTile;
  GradFormat out = GradFormat::kFloat32;
  uint64_t* parts = nullptr;  // [num_tiles], for lists and the launch alone
};

// One launch; of lists two.
using DecodeManyFn = void(const DecodeBatch& batch, Stream stream);

struct PowerSpan {
  const void* grad = nullptr;
  const float* residual = nullptr;  // may be null
  uint64_t num_elems = 0;
  double* mean_square = nullptr;
  GradFormat format = GradFormat::kFloat32;
};

// SampledPowerFn of `num_spans` arrays; `spans` is the device's.
using SampledPowerManyFn = void(const PowerSpan* spans, uint32_t num_spans,
                                Stream stream);

// What PushMomentumFn takes.
struct MomentumSpan {
  const float* grad = nullptr;
  float* momentum = nullptr;
  float* out = nullptr;
  uint64_t num_elems = 0;
  float rate = 0;
  bool leads = false;
};

// PushMomentumFn of `num_spans` arrays, none of more than `most_elems`; `spans`
// is the device's. is_aligned: all arrays to 16 bytes.
using PushMomentumManyFn = void(const MomentumSpan* spans, uint32_t num_spans,
                                uint64_t most_elems, bool is_aligned,
                                Stream stream);

// Null where there is none.
struct BatchKernels {
  EncodeManyFn* two_bit = nullptr;
  EncodeManyFn* two_bit_fp16 = nullptr;
  EncodeManyFn* two_bit_bf16 = nullptr;
  EncodeManyFn* radix = nullptr;
  EncodeManyFn* one_bit = nullptr;  // magnitude 1
  EncodeManyFn* block_sign = nullptr;
  EncodeManyFn* quantize = nullptr;
  EncodeManyFn* shared_quantize = nullptr;
  EncodeManyFn* threshold = nullptr;
  EncodeManyFn* threshold_fp16 = nullptr;
  EncodeManyFn* threshold_bf16 = nullptr;
  EncodeManyFn* top_k = nullptr;
  EncodeManyFn* fp16 = nullptr;
  EncodeManyFn* bf16 = nullptr;
  SampledPowerManyFn* sampled_power = nullptr;
  PushMomentumManyFn* push_momentum = nullptr;
  DecodeManyFn* two_bit_decode = nullptr;
  DecodeManyFn* packed_sum_decode = nullptr;
  DecodeManyFn* block_decode = nullptr;
  DecodeManyFn* radix_decode = nullptr;
  DecodeManyFn* radix_sum_decode = nullptr;
  DecodeManyFn* shared_decode = nullptr;
  DecodeManyFn* fp16_decode = nullptr;
  DecodeManyFn* bf16_decode = nullptr;
  DecodeManyFn* one_bit_decode = nullptr;
  DecodeManyFn* count_decode = nullptr;
  DecodeManyFn* block_sign_decode = nullptr;
  // Payloads of kernels/sparse_list.h, by their content.
  DecodeManyFn* sign_list_decode = nullptr;
  DecodeManyFn* value_list_decode = nullptr;
  DecodeManyFn* drawn_decode = nullptr;
  DecodeManyFn* top_decode = nullptr;
  DecodeManyFn* low_rank_decode = nullptr;
};

}  // namespace telegrad::kernels
