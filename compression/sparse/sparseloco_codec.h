#pragma once

#include "compression/codec.h"

namespace telegrad {

// SparseLoCo's, made for the change of weights over many local steps. Per
// element, r the residual, v = decay * r + g (0.95); of each 4,096 elements the
// 64 of largest |v| are sent (option density, 1/64), as a place of 12 bits and
// a code of 2: which of four bins, 1.5 standard deviations wide, v is in. A
// bin's mean is its value; r = v - that. The rule to the bit: kernels/
// block_top.h. A server that encodes again keeps all of its residual.
// Bytes: 16, and 14 bits per element sent: 0.22 bits per element. Error: v of
// what is not sent, and the distance from a bin's mean, wait, and fade: decoded
// values plus r are not the sum of gradients.
// Source: Sarfi et al., "Communication Efficient LLM Pre-training with
// SparseLoCo", arXiv 2508.15706; tplr-ai/templar.
const Codec& SparseLoCoCodec();

}  // namespace telegrad
