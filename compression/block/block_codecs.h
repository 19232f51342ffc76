#pragma once

#include "compression/codec.h"

// Factories for registry.cc. The rules are in kernels/block.h, the bytes in
// docs/wire_format.md.
namespace telegrad {

// Linear quantisation with a scale per block (option block, 1024) and error
// feedback. Bytes: n (int8) or n/2 (int4), and 4 per block. |residual| <= half
// a scale, i.e. max |v| of the block / 254 (int8) or / 14 (int4).
// Source: CGX (Markov et al., 2022), LoCo (Xie et al., 2024).
const Codec& Int8Codec();
const Codec& Int4Codec();

// Eight and four levels, odd multiples of a scale that follows the block's root
// mean square, with error feedback (option block, 256). Bytes: 3n/8 or n/4, and
// 2 per block. What is beyond the outer levels stays in the residual.
const Codec& Int3Codec();
const Codec& Int2Codec();

// As int8 and int4, with one quantum for all workers, t/32 (int8shared) or t/2
// (int4shared) of the threshold t: codes can be added. Bytes: n or n/2. What is
// beyond 127 or 7 quanta stays in the residual.
const Codec& Int8SharedCodec();
const Codec& Int4SharedCodec();

// Odd multiples, to 7 and 3, of the threshold itself. Bytes: 3n/8 or n/4.
const Codec& Int3SharedCodec();
const Codec& Int2SharedCodec();

// QSGD with the maximum norm: stochastic rounding to `levels` (127) per block
// (option block, 512); natural=1: levels are powers of two. Unbiased, without a
// residual. Source: Alistarh et al., 2017; Horvath et al., 2022.
const Codec& QsgdCodec();

// -s, 0 or s per element, s the chunk's maximum; option clip: gradients are
// limited to so many root mean squares first (then biased). Unbiased, without a
// residual. Bytes: 4 + ceil(n/4). Source: Wen et al., 2017.
const Codec& TernGradCodec();

}  // namespace telegrad
