#include "kvstore/collective/reduce.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <type_traits>

#include "kernels/dispatch.h"

namespace telegrad::collective {
namespace {

// The compiler vectorises it.
template <typename T, typename Op>
void Loop(const void* x, size_t count, void* sum, const Op& op) {
  const T* __restrict from = static_cast<const T*>(x);
  T* __restrict into = static_cast<T*>(sum);
  for (size_t i = 0; i < count; ++i) into[i] = op(into[i], from[i]);
}

// What wraps is computed without a sign.
template <typename T>
struct Wrapping {
  using Type = std::make_unsigned_t<T>;
};
template <>
struct Wrapping<float> {
  using Type = float;
};
template <>
struct Wrapping<double> {
  using Type = double;
};

template <typename T>
void ReduceAs(ReduceOp op, const void* x, size_t count, void* sum) {
  using W = typename Wrapping<T>::Type;
  switch (op) {
    case ReduceOp::kSum:
      return Loop<W>(x, count, sum, [](W a, W b) { return W(a + b); });
    case ReduceOp::kMin:
      return Loop<T>(x, count, sum, [](T a, T b) { return b < a ? b : a; });
    case ReduceOp::kMax:
      return Loop<T>(x, count, sum, [](T a, T b) { return a < b ? b : a; });
    case ReduceOp::kProduct:
      return Loop<W>(x, count, sum, [](W a, W b) { return W(a * b); });
  }
}

void ReduceF32(ReduceOp op, const float* x, size_t count, float* sum) {
  if (op != ReduceOp::kSum) return ReduceAs<float>(op, x, count, sum);
  kernels::CpuKernels().add_f32(x, count, sum, {});
}

void ReduceBools(ReduceOp op, const void* x, size_t count, void* sum) {
  using Byte = uint8_t;  // any but 0 is true
  if (op == ReduceOp::kSum || op == ReduceOp::kMax) {
    return Loop<Byte>(x, count, sum,
                      [](Byte a, Byte b) { return Byte((a | b) != 0); });
  }
  Loop<Byte>(x, count, sum,
             [](Byte a, Byte b) { return Byte((a != 0) & (b != 0)); });
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
      return ReduceAs<int32_t>(op, x, count, sum);
    case Dtype::kInt64:
      return ReduceAs<int64_t>(op, x, count, sum);
    case Dtype::kFloat64:
      return ReduceAs<double>(op, x, count, sum);
    case Dtype::kUint8:
      return ReduceAs<uint8_t>(op, x, count, sum);
    case Dtype::kInt8:
      return ReduceAs<int8_t>(op, x, count, sum);
    case Dtype::kBool:
      return ReduceBools(op, x, count, sum);
  }
}

}  // namespace telegrad::collective
