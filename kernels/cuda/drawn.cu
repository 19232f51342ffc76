#include "kernels/cuda/batch.cuh"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/stats.cuh"
#include "kernels/drawn.h"

namespace telegrad::kernels::cuda {
namespace {

// A thread has the four strata of a draw.
constexpr size_t kStrata = 4;

struct Draw {
  size_t n;
  size_t k;
};

// Aligned to 4 only.
__device__ inline uint64_t SeedOf(const uint32_t* payload) {
  return uint64_t{payload[1]} << 32 | payload[0];
}

// visit(j, index) for each stratum of this thread.
template <typename Visit>
__device__ inline void ForEachDrawn(uint64_t seed, const Draw& draw,
                                    Visit visit) {
  for (size_t first = kStrata * GlobalThread(); first < draw.k;
       first += kStrata * NumThreads()) {
    const PhiloxWords words = DrawnWords(seed, first);
#pragma unroll
    for (size_t j = 0; j < kStrata; ++j) {
      if (first + j >= draw.k) continue;
      visit(first + j, DrawnAt(words, first + j, draw.n, draw.k));
    }
  }
}

__global__ void TakeDrawnKernel(float* residual, float* momentum, Draw draw,
                                uint64_t seed, float* payload,
                                EncodeStats* stats) {
  if (GlobalThread() == 0) {
    payload[0] = __uint_as_float(static_cast<uint32_t>(seed));
    payload[1] = __uint_as_float(static_cast<uint32_t>(seed >> 32));
  }
  float* const values = payload + kDrawnValuesAt / 4;
  uint64_t num_nonzero = 0;
  ForEachDrawn(seed, draw, [=, &num_nonzero](size_t j, size_t index) {
    float* const at = residual + index;
    const bool is_sent = IsFinite(*at);
    const float value = is_sent ? *at : 0.0f;
    if (is_sent) *at = 0;
    if (is_sent && momentum != nullptr) momentum[index] = 0;
    num_nonzero += value != 0 ? 1 : 0;
    values[j] = value;
  });
  AddStats(WideTally{num_nonzero, 0, kNoIndex}, stats);
}

template <bool kAdd>
__global__ void PutDrawnKernel(const uint32_t* payload, Draw draw, float* out) {
  const uint32_t* const values = payload + kDrawnValuesAt / 4;
  ForEachDrawn(SeedOf(payload), draw, [=](size_t j, size_t index) {
    const float value = __uint_as_float(values[j]);
    out[index] = kAdd ? out[index] + value : value;
  });
}

// A block puts the strata that may have their element in its tile: stratum j
// begins at or before element begin where j <= begin * k / n.
__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    DrawnDecodeManyKernel(const __grid_constant__ DecodeBatch batch) {
  const DecodeTile tile = TileOf(batch);
  ClearTile(batch, tile);
  __syncthreads();
  const size_t n = tile.span->num_elems;
  const size_t k = tile.span->k;
  const auto* const payload = reinterpret_cast<const uint32_t*>(tile.codes);
  const uint32_t* const values = payload + kDrawnValuesAt / 4;
  const size_t end = tile.begin + tile.n;
  const size_t last = (end * k + n - 1) / n;
  const size_t first = tile.begin * k / n / kStrata * kStrata;
  for (size_t at = first + kStrata * threadIdx.x; at < last;
       at += kStrata * blockDim.x) {
    const PhiloxWords words = DrawnWords(SeedOf(payload), at);
#pragma unroll
    for (size_t j = at; j < at + kStrata; ++j) {
      if (j >= k) continue;
      const size_t index = DrawnAt(words, j, n, k);
      if (index < tile.begin || index >= end) continue;
      tile.out.StoreOne(tile.Scaled(__uint_as_float(values[j])), index);
    }
  }
}

// out = a + b; the seed is a's. `out` may be `a`.
__global__ void SumDrawnKernel(const uint32_t* a, const uint32_t* b, size_t k,
                               uint32_t* out) {
  constexpr size_t kHeader = kDrawnValuesAt / 4;
  for (size_t i = GlobalThread(); i < kHeader + k; i += NumThreads()) {
    out[i] =
        i < kHeader
            ? a[i]
            : __float_as_uint(__uint_as_float(a[i]) + __uint_as_float(b[i]));
  }
}

const uint32_t* AsWords(const uint8_t* payload) {
  return reinterpret_cast<const uint32_t*>(payload);
}

unsigned GridForStrata(size_t k) {
  return GridFor((k + kStrata - 1) / kStrata);
}

void Take(float* residual, float* momentum, size_t n, size_t k, uint64_t seed,
          uint8_t* payload, EncodeStats* stats, Stream stream) {
  TakeDrawnKernel<<<GridForStrata(k), kThreads, 0, StreamOf(stream)>>>(
      residual, momentum, Draw{n, k}, seed, reinterpret_cast<float*>(payload),
      stats);
}

template <bool kAdd>
void Put(const uint8_t* payload, size_t n, size_t k, float* out,
         Stream stream) {
  if (!kAdd) cudaMemsetAsync(out, 0, 4 * n, StreamOf(stream));
  PutDrawnKernel<kAdd><<<GridForStrata(k), kThreads, 0, StreamOf(stream)>>>(
      AsWords(payload), Draw{n, k}, out);
}

void Sum(const uint8_t* const* payloads, uint32_t num_payloads, size_t k,
         uint8_t* out, Stream stream) {
  if (num_payloads == 1 && out != payloads[0]) {
    cudaMemcpyAsync(out, payloads[0], kDrawnValuesAt + 4 * k,
                    cudaMemcpyDeviceToDevice, StreamOf(stream));
  }
  for (uint32_t p = 1; p < num_payloads; ++p) {
    SumDrawnKernel<<<GridFor(k), kThreads, 0, StreamOf(stream)>>>(
        AsWords(p == 1 ? payloads[0] : out), AsWords(payloads[p]), k,
        reinterpret_cast<uint32_t*>(out));
  }
}

}  // namespace

void DrawnDecodeMany(const DecodeBatch& batch, Stream stream) {
  LaunchDecodes(batch, DrawnDecodeManyKernel, DrawnDecodeManyKernel, stream);
}

DrawnKernels Drawn() { return {Take, Put<false>, Put<true>, Sum}; }

}  // namespace telegrad::kernels::cuda
