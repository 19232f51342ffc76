#pragma once

#include <math.h>

#include "kernels/cuda/launch.h"
#include "kernels/low_rank.h"

// Bases of low-rank approximations, of kernels/low_rank.h: one block of
// kThreads threads makes one. Thread t has elements t, t + kThreads, ... of
// each vector, reads and writes no others, and so waits for none. All threads
// multiply; those of the first kBasisLanes add, a lane each.
namespace telegrad::kernels::cuda {

constexpr size_t kBasisTile = 2048;  // products at once
static_assert(kBasisTile % kThreads == 0, "a thread has its elements");
static_assert(kBasisTile % kBasisLanes == 0, "a lane has its elements");

struct BasisShared {
  double products[kBasisTile];
  double lanes[kBasisLanes];
};

// The dot product of x and y, in all threads.
__device__ inline double DotOf(const double* x, const double* y, size_t size,
                               BasisShared& shared) {
  double lane = 0;
  for (size_t from = 0; from < size; from += kBasisTile) {
    const size_t count = size - from < kBasisTile ? size - from : kBasisTile;
    for (size_t i = threadIdx.x; i < count; i += kThreads) {
      shared.products[i] = x[from + i] * y[from + i];
    }
    __syncthreads();
    if (threadIdx.x < kBasisLanes) {
#pragma unroll 4
      for (size_t i = threadIdx.x; i < count; i += kBasisLanes) {
        lane += shared.products[i];
      }
    }
    __syncthreads();
  }
  if (threadIdx.x < kBasisLanes) shared.lanes[threadIdx.x] = lane;
  __syncthreads();
  double sum = 0;
#pragma unroll
  for (size_t l = 0; l < kBasisLanes; ++l) sum += shared.lanes[l];
  return sum;
}

// False, in all threads, where next to nothing is left.
__device__ inline bool OrthonormalizeOne(size_t size, uint32_t k,
                                         double* vectors, BasisShared& shared) {
  double* const vector = vectors + k * size;
  const double before = sqrt(DotOf(vector, vector, size, shared));
  for (uint32_t turn = 0; turn < 2 * k; ++turn) {
    const double* const basis = vectors + turn % k * size;
    const double along = DotOf(vector, basis, size, shared);
    for (size_t i = threadIdx.x; i < size; i += kThreads) {
      vector[i] -= along * basis[i];
    }
  }
  const double after = sqrt(DotOf(vector, vector, size, shared));
  if (!(after > kLeastRemainder * before)) return false;
  for (size_t i = threadIdx.x; i < size; i += kThreads) vector[i] /= after;
  return true;
}

__device__ inline void DrawVector(const DrawKey& draw, uint64_t first,
                                  size_t size, double* vector) {
  for (size_t i = threadIdx.x; i < size; i += kThreads) {
    vector[i] = BasisDraw(draw, first + i);
  }
}

// `vectors` becomes the basis on that side of a payload.
__device__ inline void WriteBasis(LowRankSide side, const LowRankShape& shape,
                                  double* vectors, BasisShared& shared,
                                  uint8_t* payload) {
  const LowRankFactor factor = FactorAt(shape, side);
  auto* const basis = reinterpret_cast<float*>(payload) + factor.first;
  for (uint32_t k = 0; k < shape.rank; ++k) {
    double* const vector = vectors + k * factor.size;
    uint64_t drawn = 0;
    while (!OrthonormalizeOne(factor.size, k, vectors, shared)) {
      DrawVector({kReplacementSeed, k}, drawn, factor.size, vector);
      drawn += factor.size;
    }
    for (size_t i = threadIdx.x; i < factor.size; i += kThreads) {
      basis[k * factor.vector_step + i * factor.element_step] =
          static_cast<float>(vector[i]);
    }
  }
  if (threadIdx.x == 0) {
    *reinterpret_cast<LowRankHeader*>(payload) = {
        static_cast<uint16_t>(shape.rank), side, 0};
  }
}

__device__ inline LowRankSide SideOf(const uint8_t* payload) {
  return reinterpret_cast<const LowRankHeader*>(payload)->side;
}

__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    LearnKernel(const uint8_t* __restrict__ sum, LowRankShape shape,
                double* vectors, uint8_t* __restrict__ next) {
  __shared__ BasisShared shared;
  const LowRankSide side = OtherSide(SideOf(sum));
  const LowRankFactor factor = FactorAt(shape, side);
  const auto* const fitted = reinterpret_cast<const float*>(sum) + factor.first;
  for (uint32_t k = 0; k < shape.rank; ++k) {
    for (size_t i = threadIdx.x; i < factor.size; i += kThreads) {
      vectors[k * factor.size + i] =
          fitted[k * factor.vector_step + i * factor.element_step];
    }
  }
  WriteBasis(side, shape, vectors, shared, next);
}

__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    RandomBasisKernel(DrawKey draw, LowRankShape shape, double* vectors,
                      uint8_t* payload) {
  __shared__ BasisShared shared;
  for (uint32_t k = 0; k < shape.rank; ++k) {
    DrawVector(draw, k * shape.cols, shape.cols, vectors + k * shape.cols);
  }
  WriteBasis(LowRankSide::kRight, shape, vectors, shared, payload);
}

}  // namespace telegrad::kernels::cuda
