#include "kernels/block.h"

#include "kernels/block_runs.h"
#include "kernels/reference.h"

namespace telegrad::kernels::reference {
namespace {

size_t EndOf(size_t from, size_t n, const BlockFormat& format) {
  return n - from < format.block ? n : from + format.block;
}

void BlockQuantize(const float* grad, float* residual, size_t n,
                   BlockFormat format, NonFinite nonfinite, uint8_t* payload,
                   EncodeStats* stats, Stream) {
  uint8_t* codes = payload + ScaleBytes(n, format);
  for (size_t from = 0; from < n; from += format.block) {
    const size_t to = EndOf(from, n, format);
    const BlockScale scale =
        ScaleOfRun(grad, residual, from, to, format, nonfinite);
    PutBlockScale(scale.scale, from / format.block, format, payload);
    QuantizeRun(grad, residual, from, to, scale, format.levels, format.bits,
                format.odd, nonfinite, codes, stats);
  }
}

void SharedQuantize(const float* grad, float* residual, size_t n, uint32_t bits,
                    float quantum, NonFinite nonfinite, uint8_t* codes,
                    EncodeStats* stats, Stream) {
  QuantizeRun(grad, residual, 0, n, SharedScaleOf(quantum, bits),
              SharedLevels(bits), bits, IsOdd(bits), nonfinite, codes, stats);
}

void Dither(const float* grad, size_t n, BlockFormat format, DitherLimit limit,
            DrawKey draw, NonFinite nonfinite, uint8_t* payload,
            EncodeStats* stats, Stream) {
  uint8_t* codes = payload + ScaleBytes(n, format);
  for (size_t from = 0; from < n; from += format.block) {
    const size_t to = EndOf(from, n, format);
    const float maximum = MaxOfRun(grad, nullptr, from, to, nonfinite);
    const BlockScale scale = ScaleOf(maximum, LimitOf(limit), format);
    std::memcpy(payload + from / format.block * 4, &scale.scale, 4);
    DitherRun(grad, from, to, scale, format, draw, nonfinite, codes, stats);
  }
}

void DecodeBlocks(const uint8_t* payload, size_t n, const BlockFormat& format,
                  bool add, float* out) {
  const uint8_t* codes = payload + ScaleBytes(n, format);
  for (size_t from = 0; from < n; from += format.block) {
    DecodeRun(codes, from, EndOf(from, n, format), format.bits, format.odd,
              BlockScaleAt(payload, from / format.block, format),
              format.natural, add, out);
  }
}

void BlockDecode(const uint8_t* payload, size_t n, BlockFormat format,
                 float* out, Stream) {
  DecodeBlocks(payload, n, format, false, out);
}

void BlockDecodeAdd(const uint8_t* payload, size_t n, BlockFormat format,
                    float* sum, Stream) {
  DecodeBlocks(payload, n, format, true, sum);
}

void SharedDecode(const uint8_t* codes, size_t n, uint32_t bits, uint32_t odd,
                  float quantum, float* out, Stream) {
  DecodeRun(codes, 0, n, bits, odd, quantum, false, false, out);
}

void SharedDecodeAdd(const uint8_t* codes, size_t n, uint32_t bits,
                     uint32_t odd, float quantum, float* sum, Stream) {
  DecodeRun(codes, 0, n, bits, odd, quantum, false, true, sum);
}

void SumCodes(const uint8_t* const* frames, uint32_t num_frames, size_t n,
              uint32_t bits, uint32_t sum_bits, uint8_t* sum, Stream) {
  SumRun(frames, num_frames, 0, n, bits, sum_bits, sum);
}

void SharedSumDecode(const uint8_t* const* frames, uint32_t num_frames,
                     size_t n, uint32_t bits, float quantum, float* out,
                     Stream) {
  SumDecodeRun(frames, num_frames, 0, n, bits, quantum, out);
}

}  // namespace

BlockKernels Block() {
  BlockKernels kernels;
  kernels.quantize = BlockQuantize;
  kernels.shared_quantize = SharedQuantize;
  kernels.dither = Dither;
  kernels.decode = BlockDecode;
  kernels.decode_add = BlockDecodeAdd;
  kernels.shared_decode = SharedDecode;
  kernels.shared_decode_add = SharedDecodeAdd;
  kernels.sum_codes = SumCodes;
  kernels.shared_sum_decode = SharedSumDecode;
  return kernels;
}

}  // namespace telegrad::kernels::reference
