#pragma once

#include "compression/codec.h"

namespace telegrad {

// Per element, in float32, t the threshold, r the residual:
//   v = r + g;  |v| >= t: sends the sign of v, r = v -+ t;  else r = v
// Only places and signs travel. Decoded: +t and -t there, else 0.
// Bytes: 12 and the smallest list of indices with signs (sparse/index_list.h):
// 1.1 to 1.4 per element sent where 2 to 1 % are, at most n / 4.
// Error: while |g| <= t in every step, |r| < t, as for 2bit.
// Source: Strom, "Scalable Distributed DNN Training Using Commodity GPU Cloud
// Computing", Interspeech 2015.
const Codec& ThresholdCodec();

}  // namespace telegrad
