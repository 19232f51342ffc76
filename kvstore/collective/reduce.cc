#include "kvstore/collective/reduce.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "kernels/dispatch.h"

namespace telegrad::collective {
namespace {

// The compiler vectorises these.
void Add(const uint32_t* x, size_t count, uint32_t* sum) {
  for (size_t i = 0; i < count; ++i) sum[i] += x[i];
}

template <typename T>
void Least(const T* x, size_t count, T* sum) {
  for (size_t i = 0; i < count; ++i) sum[i] = x[i] < sum[i] ? x[i] : sum[i];
}

template <typename T>
void Greatest(const T* x, size_t count, T* sum) {
  for (size_t i = 0; i < count; ++i) sum[i] = sum[i] < x[i] ? x[i] : sum[i];
}

void ReduceF32(ReduceOp op, const float* x, size_t count, float* sum) {
  switch (op) {
    case ReduceOp::kSum:
      return kernels::CpuKernels().add_f32(x, count, sum, {});
    case ReduceOp::kMin:
      return Least(x, count, sum);
    case ReduceOp::kMax:
      return Greatest(x, count, sum);
  }
}

void ReduceI32(ReduceOp op, const void* x, size_t count, void* sum) {
  const auto* from = static_cast<const int32_t*>(x);
  auto* into = static_cast<int32_t*>(sum);
  switch (op) {
    case ReduceOp::kSum:  // unsigned: an overflow wraps
      return Add(static_cast<const uint32_t*>(x), count,
                 static_cast<uint32_t*>(sum));
    case ReduceOp::kMin:
      return Least(from, count, into);
    case ReduceOp::kMax:
      return Greatest(from, count, into);
  }
}

void ReduceCast(const kernels::CastFormatKernels& format, ReduceOp op,
                const uint8_t* x, size_t count, uint8_t* sum) {
  constexpr size_t kBlock = 1024;  // stays in the first-level cache
  std::array<float, kBlock> a, b;
  for (size_t begin = 0; begin < count; begin += kBlock) {
    const size_t n = std::min(kBlock, count - begin);
    format.decode(sum + 2 * begin, n, a.data(), {});
    format.decode(x + 2 * begin, n, b.data(), {});
    ReduceF32(op, b.data(), n, a.data());
    kernels::EncodeStats stats;
    format.encode(a.data(), nullptr, n, kernels::NonFinite::kPropagate,
                  sum + 2 * begin, &stats, {});
  }
}

}  // namespace

void Reduce(Dtype type, ReduceOp op, const void* x, size_t count, void* sum) {
  const kernels::CastKernels& cast = kernels::CpuKernels().cast;
  switch (type) {
    case Dtype::kFloat32:
      return ReduceF32(op, static_cast<const float*>(x), count,
                       static_cast<float*>(sum));
    case Dtype::kFloat16:
      return ReduceCast(cast.fp16, op, static_cast<const uint8_t*>(x), count,
                        static_cast<uint8_t*>(sum));
    case Dtype::kBfloat16:
      return ReduceCast(cast.bf16, op, static_cast<const uint8_t*>(x), count,
                        static_cast<uint8_t*>(sum));
    case Dtype::kInt32:
      return ReduceI32(op, x, count, sum);
  }
}

}  // namespace telegrad::collective
