#pragma once

#include "compression/codec.h"

namespace telegrad {

// Deep Gradient Compression. Per element, u the momentum, v the residual:
//   u = momentum * u + clip_scale * g;  v = v + u
//   the largest |v|: sent, u = 0 and v = 0     (momentum factor masking)
// What is sent is an update with momentum: the optimizer's own must be 0.
// clip_scale = min(1, clip / L2 norm of the chunk's gradient), 1 for clip = 0;
// that W workers clip to clip / sqrt(W) is for the caller to set.
// Density: 25 %, 6.25 %, 1.5625 %, 0.39 %, each a quarter of `warmup` steps and
// never below `density`, which holds from then on.
// A server (params.source = ~0) has the workers' momentum already and sends by
// plain top-k with error feedback.
// Bytes as topk. Decoded values plus v are not the sum of gradients: masking
// drops what u held.
// Source: Lin et al., "Deep Gradient Compression", ICLR 2018.
const Codec& DgcCodec();

// The share that is sent in `step`.
double DgcDensity(const CodecOptions& options, uint64_t step);

}  // namespace telegrad
