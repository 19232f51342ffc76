#pragma once

#include "compression/codec.h"

namespace telegrad {

// The k = max(1, ceil(density * n)) elements of largest |v|, v = r + g, r the
// residual; of equal ones the lower index. They travel as float32 with their
// places; r = 0 there, else r = v. sampled=1: about k, see
// sparse/value_codec.h. Bytes: 8, 4 per element sent, and its place: about 1.1
// bytes at a density of 1 %, 2 at 0.1 %. Error: v of what is not sent waits;
// each element that is not sent is no larger than any that is. Source: Aji and
// Heafield, "Sparse Communication for Distributed Gradient Descent", EMNLP
// 2017; Stich et al., "Sparsified SGD with Memory", NIPS 2018.
const Codec& TopKCodec();

}  // namespace telegrad
