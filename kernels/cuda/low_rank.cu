#include "kernels/cuda/basis.cuh"
#include "kernels/cuda/batch.cuh"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/stats.cuh"
#include "kernels/low_rank.h"

namespace telegrad::kernels::cuda {
namespace {

// Factors that are summed while a row or column is read once.
constexpr uint32_t kGroup = 4;
constexpr unsigned kLanes = kLowRankLanes;
// Few columns: small blocks spread them over more multiprocessors.
constexpr unsigned kColumnThreads = 64;

__device__ float Limit(float value) {
  if (value > kMaxFactor) return kMaxFactor;
  if (value < -kMaxFactor) return -kMaxFactor;
  return value == value ? value : 0.0f;
}

template <bool kVector, bool kZero>
__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    AddKernel(const float* __restrict__ grad, float* __restrict__ residual,
              size_t n, EncodeStats* stats) {
  uint32_t num_nonfinite = 0;
  uint64_t first_nonfinite = kNoIndex;
  for (size_t i = 4 * GlobalThread(); i < n; i += 4 * NumThreads()) {
    float g[4];
    float m[4];
    Load4<kVector>(grad, i, n, g);
    Load4<kVector>(residual, i, n, m);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float sum = m[j] + g[j];
      const bool is_taken = !kZero || IsFinite(sum);
      if (!is_taken && i + j < n) {
        ++num_nonfinite;
        if (i + j < first_nonfinite) first_nonfinite = i + j;
      }
      m[j] = is_taken ? sum : m[j] + 0.0f;
    }
    Store4<kVector>(m, i, n, residual);
  }
  AddStats(WideTally{0, num_nonfinite, first_nonfinite}, stats);
}

// Whether a fit is that of a payload with its basis on the other side, which
// only the device knows. Without a payload: never.
__device__ bool IsOtherSide(const uint8_t* payload, LowRankSide side) {
  return payload != nullptr && (SideOf(payload) == LowRankSide::kRight) !=
                                   (side == LowRankSide::kRight);
}

// Half a warp, a thread a lane, per row.
__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    DotKernel(const float* __restrict__ m, size_t n, size_t rows, size_t cols,
              uint32_t rank, const float* __restrict__ right,
              float* __restrict__ left, const uint8_t* payload) {
  if (IsOtherSide(payload, LowRankSide::kRight)) return;
  const unsigned lane = threadIdx.x % kLanes;
  // All threads of a warp take every turn: they exchange sums.
  const size_t num_turns = (rows + 1) / 2 * 2;
  for (size_t row = GlobalThread() / kLanes; row < num_turns;
       row += NumThreads() / kLanes) {
    const size_t begin = row * cols;
    const size_t end = begin >= n ? begin : begin + cols < n ? begin + cols : n;
    for (uint32_t k = 0; k < rank; k += kGroup) {
      float sums[kGroup] = {};
      for (size_t i = begin + lane; i < end; i += kLanes) {
#pragma unroll
        for (uint32_t g = 0; g < kGroup; ++g) {
          if (k + g < rank) sums[g] += m[i] * right[(k + g) * cols + i - begin];
        }
      }
#pragma unroll
      for (uint32_t g = 0; g < kGroup; ++g) {
#pragma unroll
        for (unsigned half = kLanes / 2; half > 0; half /= 2) {
          sums[g] += __shfl_down_sync(0xFFFFFFFFu, sums[g], half, kLanes);
        }
        if (lane == 0 && row < rows && k + g < rank) {
          left[row * rank + k + g] = Limit(sums[g]);
        }
      }
    }
  }
}

// A thread per column, for the order of the sums.
__global__ void __launch_bounds__(kColumnThreads)
    ColumnKernel(const float* __restrict__ m, size_t n, size_t cols,
                 uint32_t rank, const float* __restrict__ left,
                 float* __restrict__ right, const uint8_t* payload) {
  const size_t column = GlobalThread();
  if (column >= cols || IsOtherSide(payload, LowRankSide::kLeft)) return;
  for (uint32_t k = 0; k < rank; k += kGroup) {
    float sums[kGroup] = {};
    const float* factors = left + k;
#pragma unroll 4
    for (size_t i = column; i < n; i += cols) {
      const float value = m[i];
#pragma unroll
      for (uint32_t g = 0; g < kGroup; ++g) {
        if (k + g < rank) sums[g] += factors[g] * value;
      }
      factors += rank;
    }
#pragma unroll
    for (uint32_t g = 0; g < kGroup; ++g) {
      if (k + g < rank) right[(k + g) * cols + column] = Limit(sums[g]);
    }
  }
}

__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    CountFittedKernel(const uint8_t* payload, LowRankShape shape,
                      EncodeStats* stats) {
  const LowRankFactor factor = FactorAt(shape, OtherSide(SideOf(payload)));
  const auto* const fitted =
      reinterpret_cast<const float*>(payload) + factor.first;
  uint64_t num_nonzero = 0;
  for (size_t i = GlobalThread(); i < factor.count; i += NumThreads()) {
    num_nonzero += fitted[i] != 0;
  }
  AddStats(WideTally{num_nonzero, 0, kNoIndex}, stats);
}

__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    AddFittedKernel(const uint8_t* __restrict__ payload, LowRankShape shape,
                    uint8_t* __restrict__ sum) {
  const LowRankFactor factor = FactorAt(shape, OtherSide(SideOf(sum)));
  const auto* const from =
      reinterpret_cast<const float*>(payload) + factor.first;
  auto* const to = reinterpret_cast<float*>(sum) + factor.first;
  for (size_t i = GlobalThread(); i < factor.count; i += NumThreads()) {
    to[i] += from[i];
  }
}

enum class Product { kSubtract, kStore, kAdd };

// Four elements a thread; cols is a multiple of 4, so they are of one row.
template <bool kVector, Product kProduct>
__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    ProductKernel(const float* __restrict__ left,
                  const float* __restrict__ right, size_t n, size_t cols,
                  uint32_t rank, float* __restrict__ out) {
  for (size_t i = 4 * GlobalThread(); i < n; i += 4 * NumThreads()) {
    const float* factors = left + i / cols * rank;
    const float* basis = right + i % cols;
    float old[4] = {};
    float values[4] = {};
    if (kProduct != Product::kStore) Load4<kVector>(out, i, n, old);
    for (uint32_t k = 0; k < rank; ++k, basis += cols) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float product = factors[k] * basis[j];
        if (kProduct == Product::kSubtract) {
          old[j] -= product;
        } else {
          values[j] += product;
        }
      }
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (kProduct != Product::kStore) values[j] = old[j] + values[j];
      if (kProduct == Product::kSubtract) values[j] = old[j];
    }
    Store4<kVector>(values, i, n, out);
  }
}

// A thread has four elements, as ProductKernel's do; a payload is a sum, too.
template <bool kVector>
__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    LowRankDecodeManyKernel(const __grid_constant__ DecodeBatch batch) {
  const DecodeTile tile = TileOf(batch);
  const uint32_t rank = tile.span->k;
  const size_t cols = tile.span->cols;
  const auto* const right = reinterpret_cast<const float*>(tile.codes) + 1;
  const float* const left = right + rank * cols;
  const DecodeOut out = tile.out.From(tile.begin);
  for (size_t i = 4 * threadIdx.x; i < tile.n; i += 4 * blockDim.x) {
    const float* const factors = left + (tile.begin + i) / cols * rank;
    const float* basis = right + (tile.begin + i) % cols;
    float values[4] = {};
    for (uint32_t k = 0; k < rank; ++k, basis += cols) {
#pragma unroll
      for (int j = 0; j < 4; ++j) values[j] += factors[k] * basis[j];
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) values[j] = tile.Scaled(values[j]);
    out.Store<kVector>(values, i, tile.n);
  }
}

void AddGradient(const float* grad, float* residual, size_t n,
                 NonFinite nonfinite, EncodeStats* stats, Stream stream) {
  const bool is_vector = IsAligned(grad, 16) && IsAligned(residual, 16);
  const bool is_zero = nonfinite == NonFinite::kZero;
  auto* const kernel =
      is_vector ? (is_zero ? AddKernel<true, true> : AddKernel<true, false>)
                : (is_zero ? AddKernel<false, true> : AddKernel<false, false>);
  kernel<<<GridFor((n + 3) / 4), kThreads, 0, StreamOf(stream)>>>(
      grad, residual, n, stats);
}

template <Product kProduct>
void Multiply(const float* left, const float* right, LowRankShape shape,
              float* out, Stream stream) {
  if (shape.n == 0) return;
  auto* const kernel = IsAligned(out, 16) ? ProductKernel<true, kProduct>
                                          : ProductKernel<false, kProduct>;
  kernel<<<GridFor((shape.n + 3) / 4), kThreads, 0, StreamOf(stream)>>>(
      left, right, shape.n, shape.cols, shape.rank, out);
}

void Dot(const float* m, LowRankShape shape, const float* right, float* left,
         const uint8_t* payload, Stream stream) {
  const size_t rows = shape.rows();
  DotKernel<<<GridFor((rows + 1) / 2 * kWarp), kThreads, 0, StreamOf(stream)>>>(
      m, shape.n, rows, shape.cols, shape.rank, right, left, payload);
}

void DotColumns(const float* m, LowRankShape shape, const float* left,
                float* right, const uint8_t* payload, Stream stream) {
  const auto grid =
      static_cast<unsigned>((shape.cols + kColumnThreads - 1) / kColumnThreads);
  ColumnKernel<<<grid, kColumnThreads, 0, StreamOf(stream)>>>(
      m, shape.n, shape.cols, shape.rank, left, right, payload);
}

void FitLeft(const float* grad, float* residual, LowRankShape shape,
             const float* right, NonFinite nonfinite, float* left,
             EncodeStats* stats, Stream stream) {
  if (shape.n == 0) return;
  AddGradient(grad, residual, shape.n, nonfinite, stats, stream);
  Dot(residual, shape, right, left, nullptr, stream);
  Multiply<Product::kSubtract>(left, right, shape, residual, stream);
}

void FitRight(const float* grad, float* residual, LowRankShape shape,
              const float* left, NonFinite nonfinite, float* right,
              EncodeStats* stats, Stream stream) {
  if (shape.n == 0) return;
  AddGradient(grad, residual, shape.n, nonfinite, stats, stream);
  DotColumns(residual, shape, left, right, nullptr, stream);
  Multiply<Product::kSubtract>(left, right, shape, residual, stream);
}

// A thread for each element of the larger factor.
unsigned GridForFactor(const LowRankShape& shape) {
  const size_t rows = shape.rows();
  return GridFor(shape.rank * (rows < shape.cols ? shape.cols : rows));
}

float* FactorIn(uint8_t* payload, const LowRankShape& shape, LowRankSide side) {
  return reinterpret_cast<float*>(payload) + FactorAt(shape, side).first;
}

// Both sums are queued; the device knows which one it is.
void Fit(const float* grad, float* residual, LowRankShape shape,
         NonFinite nonfinite, uint8_t* payload, EncodeStats* stats,
         Stream stream) {
  if (shape.n == 0) return;
  float* const right = FactorIn(payload, shape, LowRankSide::kRight);
  float* const left = FactorIn(payload, shape, LowRankSide::kLeft);
  AddGradient(grad, residual, shape.n, nonfinite, stats, stream);
  Dot(residual, shape, right, left, payload, stream);
  DotColumns(residual, shape, left, right, payload, stream);
  CountFittedKernel<<<GridForFactor(shape), kThreads, 0, StreamOf(stream)>>>(
      payload, shape, stats);
  Multiply<Product::kSubtract>(left, right, shape, residual, stream);
}

void AddFitted(const uint8_t* payload, LowRankShape shape, uint8_t* sum,
               Stream stream) {
  AddFittedKernel<<<GridForFactor(shape), kThreads, 0, StreamOf(stream)>>>(
      payload, shape, sum);
}

void Learn(const uint8_t* sum, LowRankShape shape, double* vectors,
           uint8_t* next, Stream stream) {
  LearnKernel<<<1, kThreads, 0, StreamOf(stream)>>>(sum, shape, vectors, next);
}

void RandomBasis(DrawKey draw, LowRankShape shape, double* vectors,
                 uint8_t* payload, Stream stream) {
  RandomBasisKernel<<<1, kThreads, 0, StreamOf(stream)>>>(draw, shape, vectors,
                                                          payload);
}

}  // namespace

void LowRankDecodeMany(const DecodeBatch& batch, Stream stream) {
  LaunchDecodes(batch, LowRankDecodeManyKernel<true>,
                LowRankDecodeManyKernel<false>, stream);
}

LowRankKernels LowRank() {
  LowRankKernels kernels;
  kernels.fit_left = FitLeft;
  kernels.fit_right = FitRight;
  kernels.fit = Fit;
  kernels.add_fitted = AddFitted;
  kernels.learn = Learn;
  kernels.random = RandomBasis;
  kernels.expand = Multiply<Product::kStore>;
  kernels.expand_add = Multiply<Product::kAdd>;
  return kernels;
}

}  // namespace telegrad::kernels::cuda
