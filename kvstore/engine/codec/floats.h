#pragma once

#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "base/dtype.h"
#include "compression/codec.h"
#include "kernels/dispatch.h"
#include "kvstore/engine/codec/shard_plan.h"
#include "kvstore/options.h"

// Gradients and outputs, which may be of 16-bit floats, as kernels want them.
namespace telegrad {

inline const float* Floats(ConstBytes bytes) {
  return reinterpret_cast<const float*>(bytes.data);
}
inline float* Floats(Bytes bytes) {
  return reinterpret_cast<float*>(bytes.data);
}

// A chunk's part of a tensor of this type.
template <typename View>
View PartOf(View tensor, const Chunk& chunk, Dtype dtype) {
  return {tensor.data + SizeOf(dtype) * chunk.begin,
          SizeOf(dtype) * chunk.num_elems, tensor.device};
}

// Nullopt for what kernels take as it is.
inline std::optional<HalfFormat> HalfFormatOf(Dtype dtype) {
  if (dtype == Dtype::kFloat32) return std::nullopt;
  return dtype == Dtype::kFloat16 ? HalfFormat::kFp16 : HalfFormat::kBf16;
}

// from [n] of `dtype`, a type of floats -> to [n] f32, exactly.
inline void Widen(const kernels::KernelTable& table, ConstBytes from,
                  Dtype dtype, size_t n, float* to, Stream stream) {
  if (n == 0) return;  // nor are there addresses
  if (dtype == Dtype::kFloat32) {
    return table.copy(from.data, 4 * n, to, stream);
  }
  const auto& cast =
      dtype == Dtype::kFloat16 ? table.cast.fp16 : table.cast.bf16;
  cast.decode(reinterpret_cast<const uint8_t*>(from.data), n, to, stream);
}

// And back, rounded once; what is not finite stays so. `stats` is memory for
// kernels; what it gets says nothing.
inline void Narrow(const kernels::KernelTable& table, const float* from,
                   size_t n, Bytes to, Dtype dtype, EncodeStats* stats,
                   Stream stream) {
  if (n == 0) return;
  if (dtype == Dtype::kFloat32) {
    return table.copy(from, 4 * n, to.data, stream);
  }
  const auto& cast =
      dtype == Dtype::kFloat16 ? table.cast.fp16 : table.cast.bf16;
  cast.encode(from, nullptr, n, NonFinite::kPropagate,
              reinterpret_cast<uint8_t*>(to.data), stats, stream);
}

// What is pushed, out [n], in place of a gradient, [n] of `dtype`, by a
// contributor that keeps momentum [n].
inline void PushMomentumOf(const CompressionConfig& config,
                           const kernels::KernelTable& table, ConstBytes grad,
                           Dtype dtype, size_t n, float* momentum, float* out,
                           Stream stream) {
  if (dtype != Dtype::kFloat32) Widen(table, grad, dtype, n, out, stream);
  table.optimizer.push_momentum(
      dtype == Dtype::kFloat32 ? Floats(grad) : out, n, config.momentum_rate,
      config.momentum == PushMomentum::kNesterov, momentum, out, stream);
}

// result [n], a round's.
inline void ScaleResult(const OptimizerConfig& config,
                        const kernels::KernelTable& table, size_t n,
                        float* result, Stream stream) {
  if (config.result_scale == 1) return;
  table.scale_f32(config.result_scale, n, result, stream);
}

}  // namespace telegrad
