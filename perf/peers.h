#pragma once

#include <cstddef>
#include <cstdint>

// What others do, written from their rules as the loops they are: what a user
// of those systems has on one core.
namespace telegrad::perf {

// apache/mxnet src/kvstore/gradient_compression-inl.h: a branch per element.
void MxnetQuantize(const float* grad, float* residual, size_t n,
                   float threshold, uint8_t* codes);
void MxnetDequantize(const uint8_t* codes, size_t n, float threshold,
                     float* out);
// What its server does with a contribution: dequantize to a temporary, then
// add that. `MxnetMerge` takes a temporary of n floats, as the server does;
// `MxnetMergeInCache` one that stays in cache, where it could have been.
void MxnetMerge(const uint8_t* codes, size_t n, float threshold,
                float* temporary, float* sum);
void MxnetMergeInCache(const uint8_t* codes, size_t n, float threshold,
                       float* sum);

// Its 1-bit rule: +1 is sent above the threshold, else -1; codes are whole
// words of 32.
void MxnetQuantizeOneBit(const float* grad, float* residual, size_t n,
                         float threshold, uint8_t* codes);
void MxnetDequantizeOneBit(const uint8_t* codes, size_t n, float* out);

// bytedance/byteps byteps/common/compressor/impl/topk.cc: a heap of the k
// largest magnitudes, with its error feedback around it. Writes k pairs of
// index and value. Returns k or n, whichever is less.
size_t BytepsTopK(const float* grad, float* residual, size_t n, size_t k,
                  uint32_t* indices, float* values);

}  // namespace telegrad::perf
