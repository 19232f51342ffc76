#pragma once

#include "compression/codec.h"

namespace telegrad {

// k = max(1, ceil(density * n)) elements that all workers choose alike, so that
// values can be added place by place and no places travel. Elements [j * n / k,
// (j + 1) * n / k) are stratum j, of which one is sent:
//   first + (len * Philox(seed, j / 4)[j % 4] >> 32)
// with seed = the first two words of Philox(stream, step). v = r + g, r the
// residual; what is sent travels as v and has r = 0, else r = v.
// Bytes: 8 + 4k. Error: an element waits 1 / density steps on average.
// Sums: floats added in the given order; every payload must have one seed.
// Source: Stich et al., "Sparsified SGD with Memory", NIPS 2018 (rand_k);
// Wangni et al., "Gradient Sparsification", NIPS 2018.
const Codec& RandomKCodec();

}  // namespace telegrad
