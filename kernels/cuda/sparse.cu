#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/half.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/sparse.h"

// One pass: a block takes a tile, counts its survivors, learns from the tiles
// before it where its list begins (decoupled look-back: Merrill and Garland,
// "Single-pass Parallel Prefix Scan with Decoupled Look-back", 2016) and writes
// it. Tiles are handed out in order, so that those before are always done or
// under way.
namespace telegrad::kernels::cuda {
namespace {

using Word = unsigned long long;

// A thread has kRounds times four elements that lie together.
constexpr unsigned kRounds = 4;
constexpr unsigned kRoundElements = 4 * kThreads;
constexpr unsigned kWarps = kThreads / kWarp;
static_assert(kRounds * kRoundElements == kSparseTile);
// The counts of all rounds in one word.
constexpr unsigned kFieldBits = 16;
static_assert(kRounds * kFieldBits == 64);
static_assert(kRoundElements < 1u << kFieldBits);

// What a tile says of itself: in the upper two bits, how much it knows.
constexpr Word kOwnCount = Word{1} << 62;    // survivors of this tile
constexpr Word kCountSoFar = Word{2} << 62;  // and of all before it
constexpr Word kCountMask = kOwnCount - 1;

// SparseScratchBytes: the next tile, unused, and a word per tile, all 0.
struct Scratch {
  Word next_tile;
  Word unused;
  Word tiles[1];
};

__device__ inline Word Peek(const Word* at) {
  return *static_cast<const volatile Word*>(at);
}
__device__ inline void Tell(Word value, Word* at) {
  *static_cast<volatile Word*>(at) = value;
}

// Survivors of all tiles before `tile`; by a whole warp, 32 tiles at a time.
__device__ inline Word CountBefore(size_t tile, const Word* tiles) {
  const unsigned lane = threadIdx.x % kWarp;
  Word total = 0;
  for (size_t end = tile; end > 0; end = end > kWarp ? end - kWarp : 0) {
    Word word = kCountSoFar;  // before the first: 0
    if (lane < end) {
      do {
        word = Peek(tiles + (end - 1 - lane));
      } while (word < kOwnCount);
    }
    const unsigned knows_all = __ballot_sync(0xFFFFFFFFu, word >= kCountSoFar);
    // Lanes nearer to the tile than the first that knows all, and that one.
    const unsigned last = knows_all == 0 ? kWarp - 1 : __ffs(knows_all) - 1;
    const Word part = lane <= last ? word & kCountMask : 0;
    total += __shfl_sync(0xFFFFFFFFu, WarpSum(part), 0);
    if (knows_all != 0) break;
  }
  return total;
}

// The sums of `counts` over the threads before this one; `total` of all.
__device__ inline Word CountsBefore(Word counts, Word (&warp_sums)[kWarps],
                                    Word* total) {
  const unsigned lane = threadIdx.x % kWarp;
  Word sum = counts;
#pragma unroll
  for (unsigned step = 1; step < kWarp; step *= 2) {
    const Word other = __shfl_up_sync(0xFFFFFFFFu, sum, step);
    if (lane >= step) sum += other;
  }
  if (lane == kWarp - 1) warp_sums[threadIdx.x / kWarp] = sum;
  __syncthreads();
  Word before = 0;
  *total = 0;
#pragma unroll
  for (unsigned w = 0; w < kWarps; ++w) {
    if (w < threadIdx.x / kWarp) before += warp_sums[w];
    *total += warp_sums[w];
  }
  return before + sum - counts;
}

template <class Grad>
struct Pass {
  const typename Grad::Element* __restrict__ grad;
  MomentumCorrection correction;
  float* __restrict__ momentum;
  float* __restrict__ residual;
  size_t n;
  float threshold;
  uint32_t* __restrict__ indices;
  float* __restrict__ values;
  Word* num_survivors;
  EncodeStats* stats;
  Scratch* scratch;
};

enum class Rule { kThreshold, kLarge, kMomentum };

struct Counts {
  uint64_t num_survivors = 0;
  uint64_t num_nonfinite = 0;
  uint64_t first_nonfinite = kNoIndex;
};

// v of four elements from i on; their momentum is stored.
template <class Grad, Rule kRule, bool kVector, bool kZeroNonFinite>
__device__ inline void Load(const Pass<Grad>& p, size_t i, float (&v)[4],
                            Counts& counts) {
  float g[4];
  float r[4];
  float u[4] = {};
  Grad::template Load<kVector>(p.grad, i, p.n, g);
  Load4<kVector>(p.residual, i, p.n, r);
  if (kRule == Rule::kMomentum) Load4<kVector>(p.momentum, i, p.n, u);
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const float decayed = p.correction.rate * u[j];
    u[j] =
        kRule == Rule::kMomentum ? decayed + p.correction.scale * g[j] : g[j];
    v[j] = r[j] + u[j];
    if (kZeroNonFinite && !IsFinite(v[j]) && i + j < p.n) {
      ++counts.num_nonfinite;
      if (i + j < counts.first_nonfinite) counts.first_nonfinite = i + j;
      u[j] =
          kRule == Rule::kMomentum && IsFinite(r[j] + decayed) ? decayed : 0.0f;
      v[j] = r[j] + u[j];
    }
  }
  if (kRule == Rule::kMomentum) Store4<kVector>(u, i, p.n, p.momentum);
}

// Which of four elements survive, as bits; stores the residual.
template <Rule kRule, bool kVector, class Grad>
__device__ inline unsigned Take(const Pass<Grad>& p, size_t i,
                                const float (&v)[4]) {
  unsigned survivors = 0;
  float r[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const float magnitude = fabsf(v[j]);
    bool survives = magnitude >= p.threshold;
    r[j] = v[j];
    if (kRule == Rule::kThreshold) {
      if (survives) r[j] = v[j] > 0 ? v[j] - p.threshold : v[j] + p.threshold;
    } else {
      survives = survives && IsFinite(magnitude);
    }
    if (survives && i + j < p.n) survivors |= 1u << j;
  }
  Store4<kVector>(r, i, p.n, p.residual);
  return survivors;
}

// Appends the survivors of four elements at `at`.
template <Rule kRule, class Grad>
__device__ inline void Append(const Pass<Grad>& p, size_t i,
                              const float (&v)[4], unsigned survivors,
                              Word at) {
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    if ((survivors >> j & 1u) == 0) continue;
    const auto index = static_cast<uint32_t>(i + j);
    if (kRule == Rule::kThreshold) {
      p.indices[at++] = index << 1 | (v[j] < 0 ? 1u : 0u);
    } else {
      p.values[at] = v[j];
      p.indices[at++] = index;
    }
  }
}

template <class Grad, Rule kRule, bool kVector, bool kZeroNonFinite>
__device__ inline void DoTile(const Pass<Grad>& p, size_t tile,
                              size_t num_tiles, Word (&warp_sums)[kWarps],
                              Word& shared_before, Counts& counts) {
  const size_t first = tile * kSparseTile + 4 * threadIdx.x;
  float v[kRounds][4];
  unsigned survivors[kRounds];
  Word packed = 0;
#pragma unroll
  for (unsigned k = 0; k < kRounds; ++k) {
    const size_t i = first + k * kRoundElements;
    Load<Grad, kRule, kVector, kZeroNonFinite>(p, i, v[k], counts);
    survivors[k] = Take<kRule, kVector>(p, i, v[k]);
    const unsigned count = __popc(survivors[k]);
    packed |= Word{count} << k * kFieldBits;
    counts.num_survivors += count;
  }
  Word total = 0;
  const Word before = CountsBefore(packed, warp_sums, &total);
  Word in_tile = 0;
#pragma unroll
  for (unsigned k = 0; k < kRounds; ++k) {
    in_tile += total >> k * kFieldBits & 0xFFFFu;
  }
  Word* tiles = p.scratch->tiles;
  if (threadIdx.x < kWarp) {
    if (threadIdx.x == 0) Tell(kOwnCount | in_tile, tiles + tile);
    const Word so_far = CountBefore(tile, tiles);
    if (threadIdx.x == 0) {
      Tell(kCountSoFar | (so_far + in_tile), tiles + tile);
      if (tile + 1 == num_tiles) *p.num_survivors = so_far + in_tile;
      shared_before = so_far;
    }
  }
  __syncthreads();
  Word round = shared_before;
#pragma unroll
  for (unsigned k = 0; k < kRounds; ++k) {
    Append<kRule>(p, first + k * kRoundElements, v[k], survivors[k],
                  round + (before >> k * kFieldBits & 0xFFFFu));
    round += total >> k * kFieldBits & 0xFFFFu;
  }
}

template <class Grad, Rule kRule, bool kVector, bool kZeroNonFinite>
__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    SurvivorsKernel(Pass<Grad> p, size_t num_tiles) {
  __shared__ Word warp_sums[kWarps];
  __shared__ Word shared_before;
  __shared__ Word shared_tile;
  Counts counts;
  for (;;) {
    // Also keeps a fast warp from the shared words of the tile before.
    __syncthreads();
    if (threadIdx.x == 0) {
      shared_tile = atomicAdd(&p.scratch->next_tile, Word{1});
    }
    __syncthreads();
    const size_t tile = shared_tile;
    if (tile >= num_tiles) break;
    DoTile<Grad, kRule, kVector, kZeroNonFinite>(p, tile, num_tiles, warp_sums,
                                                 shared_before, counts);
  }
  AddStats(counts.num_survivors, counts.num_nonfinite, counts.first_nonfinite,
           p.stats);
}

template <Rule kRule, class Grad>
void Launch(const Pass<Grad>& p, NonFinite nonfinite, Stream stream) {
  if (p.n == 0) {
    cudaMemsetAsync(p.num_survivors, 0, sizeof(Word), StreamOf(stream));
    return;
  }
  cudaMemsetAsync(p.scratch, 0, SparseScratchBytes(p.n), StreamOf(stream));
  const size_t num_tiles = (p.n + kSparseTile - 1) / kSparseTile;
  const bool is_zero = nonfinite == NonFinite::kZero;
  const bool is_vector =
      IsAligned(p.grad, 16) && IsAligned(p.residual, 16) &&
      (kRule != Rule::kMomentum || IsAligned(p.momentum, 16));
  auto* const kernel =
      is_vector ? (is_zero ? SurvivorsKernel<Grad, kRule, true, true>
                           : SurvivorsKernel<Grad, kRule, true, false>)
                : (is_zero ? SurvivorsKernel<Grad, kRule, false, true>
                           : SurvivorsKernel<Grad, kRule, false, false>);
  kernel<<<GridFor(num_tiles * kThreads), kThreads, 0, StreamOf(stream)>>>(
      p, num_tiles);
}

template <class Grad>
void ThresholdEncode(const typename Grad::Element* grad, float* residual,
                     size_t n, float threshold, NonFinite nonfinite,
                     uint32_t* survivors, uint64_t* num_survivors,
                     EncodeStats* stats, void* scratch, Stream stream) {
  Launch<Rule::kThreshold>(
      Pass<Grad>{grad, MomentumCorrection{}, nullptr, residual, n, threshold,
                 survivors, nullptr, reinterpret_cast<Word*>(num_survivors),
                 stats, static_cast<Scratch*>(scratch)},
      nonfinite, stream);
}

void LargeValues(const float* grad, float* residual, size_t n, float threshold,
                 NonFinite nonfinite, uint32_t* indices, float* values,
                 uint64_t* num_survivors, EncodeStats* stats, void* scratch,
                 Stream stream) {
  Launch<Rule::kLarge>(Pass<OfFloat32>{grad, MomentumCorrection{}, nullptr,
                                       residual, n, threshold, indices, values,
                                       reinterpret_cast<Word*>(num_survivors),
                                       stats, static_cast<Scratch*>(scratch)},
                       nonfinite, stream);
}

void MomentumLargeValues(const float* grad, MomentumCorrection correction,
                         float* momentum, float* residual, size_t n,
                         float threshold, NonFinite nonfinite,
                         uint32_t* indices, float* values,
                         uint64_t* num_survivors, EncodeStats* stats,
                         void* scratch, Stream stream) {
  Launch<Rule::kMomentum>(
      Pass<OfFloat32>{grad, correction, momentum, residual, n, threshold,
                      indices, values, reinterpret_cast<Word*>(num_survivors),
                      stats, static_cast<Scratch*>(scratch)},
      nonfinite, stream);
}

}  // namespace

SparseKernels Sparse() {
  return {ThresholdEncode<OfFloat32>, ThresholdEncode<OfFp16>,
          ThresholdEncode<OfBf16>, LargeValues, MomentumLargeValues};
}

}  // namespace telegrad::kernels::cuda
