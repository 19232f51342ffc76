#include "kernels/cuda/arrays.cuh"
#include "kernels/cuda/compaction.cuh"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/half.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/sparse_many.h"
#include "kernels/cuda/stats.cuh"
#include "kernels/sparse.h"
#include "kernels/sparse_scratch.h"

// One pass: a block takes a tile, counts its survivors, learns from the tiles
// before it where its list begins (compaction.cuh) and writes it.
namespace telegrad::kernels::cuda {
namespace {

// A thread has kRounds times four elements that lie together.
constexpr unsigned kRounds = 4;
constexpr unsigned kRoundElements = 4 * kThreads;
static_assert(kRounds * kRoundElements == kSparseTile);
// The counts of all rounds in one word.
constexpr unsigned kFieldBits = 16;
static_assert(kRounds * kFieldBits == 64);
static_assert(kRoundElements < 1u << kFieldBits);

template <class Grad>
struct Pass {
  const typename Grad::Element* __restrict__ grad;
  MomentumCorrection correction;
  float* __restrict__ momentum;
  float* __restrict__ residual;
  size_t n;
  float threshold;  // kThreshold's; else threshold_at has it
  const float* threshold_at;
  uint32_t* __restrict__ indices;
  float* __restrict__ values;
  Word* num_survivors;
  EncodeStats* stats;
  TileScratch* scratch;
  float scale;  // as the correction says
};

enum class Rule { kThreshold, kLarge, kMomentum };

// Four elements of each array.
struct Loaded {
  float g[4];
  float r[4];
  float u[4];
};

template <class Grad, Rule kRule, bool kVector>
__device__ inline void Load(const Pass<Grad>& p, size_t i, Loaded& loaded) {
  Grad::template Load<kVector>(p.grad, i, p.n, loaded.g);
  Load4<kVector>(p.residual, i, p.n, loaded.r);
  if (kRule == Rule::kMomentum) Load4<kVector>(p.momentum, i, p.n, loaded.u);
}

// v of four elements from i on; their momentum is stored.
template <class Grad, Rule kRule, bool kVector, bool kZeroNonFinite>
__device__ inline void Correct(const Pass<Grad>& p, size_t i, Loaded& loaded,
                               float (&v)[4], Tally& counts) {
  float(&g)[4] = loaded.g;
  float(&r)[4] = loaded.r;
  float(&u)[4] = loaded.u;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const float decayed =
        kRule == Rule::kMomentum ? p.correction.rate * u[j] : 0.0f;
    u[j] = kRule == Rule::kMomentum ? decayed + p.scale * g[j] : g[j];
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
      if (p.momentum != nullptr) p.momentum[index] = 0;
    } else {
      p.values[at] = v[j];
      p.indices[at++] = index;
    }
  }
}

template <class Grad, Rule kRule, bool kVector, bool kZeroNonFinite>
__device__ inline void DoTile(const Pass<Grad>& p, size_t tile,
                              size_t num_tiles, Word (&warp_sums)[kWarps],
                              Word& shared_before, Tally& counts) {
  const size_t first = tile * kSparseTile + 4 * threadIdx.x;
  float v[kRounds][4];
  unsigned survivors[kRounds];
  Word packed = 0;
  // All loads before the first store, which could be of the same memory for all
  // that the compiler knows.
  Loaded loaded[kRounds];
#pragma unroll
  for (unsigned k = 0; k < kRounds; ++k) {
    Load<Grad, kRule, kVector>(p, first + k * kRoundElements, loaded[k]);
  }
#pragma unroll
  for (unsigned k = 0; k < kRounds; ++k) {
    const size_t i = first + k * kRoundElements;
    Correct<Grad, kRule, kVector, kZeroNonFinite>(p, i, loaded[k], v[k],
                                                  counts);
    survivors[k] = Take<kRule, kVector>(p, i, v[k]);
    const unsigned count = __popc(survivors[k]);
    packed |= Word{count} << k * kFieldBits;
    counts.num_nonzero += count;
  }
  Word total = 0;
  const Word before = CountsBefore(packed, warp_sums, &total);
  Word in_tile = 0;
#pragma unroll
  for (unsigned k = 0; k < kRounds; ++k) {
    in_tile += total >> k * kFieldBits & 0xFFFFu;
  }
  Word round = CountInTurn(tile, in_tile, p.scratch->tiles, shared_before);
  if (threadIdx.x == 0 && tile + 1 == num_tiles) {
    *p.num_survivors = round + in_tile;
  }
#pragma unroll
  for (unsigned k = 0; k < kRounds; ++k) {
    Append<kRule>(p, first + k * kRoundElements, v[k], survivors[k],
                  round + (before >> k * kFieldBits & 0xFFFFu));
    round += total >> k * kFieldBits & 0xFFFFu;
  }
}

template <class Source, class Grad, Rule kRule, bool kVector,
          bool kZeroNonFinite>
__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    SurvivorsKernel(const __grid_constant__ Source source) {
  __shared__ Word warp_sums[kWarps];
  __shared__ Word shared_before;
  __shared__ Word shared_tile;
  Pass<Grad> p = source.Get();
  const size_t num_tiles = (p.n + kSparseTile - 1) / kSparseTile;
  if (kRule != Rule::kThreshold) p.threshold = ThresholdAt(p.threshold_at);
  if (kRule == Rule::kMomentum) p.scale = ScaleAt(p.correction.scale);
  Tally counts;
  for (;;) {
    const size_t tile = NextTile(p.scratch, shared_tile);
    if (tile >= num_tiles) break;
    DoTile<Grad, kRule, kVector, kZeroNonFinite>(p, tile, num_tiles, warp_sums,
                                                 shared_before, counts);
  }
  AddStats(counts, p.stats);
}

template <class Grad, Rule kRule, class Source>
void LaunchPass(const Source& source, unsigned grid, bool is_vector,
                NonFinite nonfinite, Stream stream) {
  const bool is_zero = nonfinite == NonFinite::kZero;
  auto* const kernel =
      is_vector ? (is_zero ? SurvivorsKernel<Source, Grad, kRule, true, true>
                           : SurvivorsKernel<Source, Grad, kRule, true, false>)
      : is_zero ? SurvivorsKernel<Source, Grad, kRule, false, true>
                : SurvivorsKernel<Source, Grad, kRule, false, false>;
  kernel<<<grid, kThreads, 0, StreamOf(stream)>>>(source);
}

template <Rule kRule, class Grad>
void Launch(const Pass<Grad>& p, NonFinite nonfinite, Stream stream) {
  if (p.n == 0) {
    cudaMemsetAsync(p.num_survivors, 0, sizeof(Word), StreamOf(stream));
    return;
  }
  cudaMemsetAsync(p.scratch, 0, SparseScratchBytes(p.n), StreamOf(stream));
  const size_t num_tiles = (p.n + kSparseTile - 1) / kSparseTile;
  const bool is_vector =
      IsAligned(p.grad, 16) && IsAligned(p.residual, 16) &&
      (kRule != Rule::kMomentum || IsAligned(p.momentum, 16));
  LaunchPass<Grad, kRule>(One<Pass<Grad>>{p}, GridFor(num_tiles * kThreads),
                          is_vector, nonfinite, stream);
}

template <class Grad>
void ThresholdEncode(const typename Grad::Element* grad, float* residual,
                     float* momentum, size_t n, float threshold,
                     NonFinite nonfinite, uint32_t* survivors,
                     uint64_t* num_survivors, EncodeStats* stats, void* scratch,
                     Stream stream) {
  Launch<Rule::kThreshold>(
      Pass<Grad>{grad, MomentumCorrection{}, momentum, residual, n, threshold,
                 nullptr, survivors, nullptr,
                 reinterpret_cast<Word*>(num_survivors), stats,
                 static_cast<TileScratch*>(scratch), 1},
      nonfinite, stream);
}

void LargeValues(const float* grad, float* residual, size_t n,
                 const float* threshold, NonFinite nonfinite, uint32_t* indices,
                 float* values, uint64_t* num_survivors, EncodeStats* stats,
                 void* scratch, Stream stream) {
  Launch<Rule::kLarge>(
      Pass<OfFloat32>{grad, MomentumCorrection{}, nullptr, residual, n, 0,
                      threshold, indices, values,
                      reinterpret_cast<Word*>(num_survivors), stats,
                      static_cast<TileScratch*>(scratch), 1},
      nonfinite, stream);
}

void MomentumLargeValues(const float* grad, MomentumCorrection correction,
                         float* momentum, float* residual, size_t n,
                         const float* threshold, NonFinite nonfinite,
                         uint32_t* indices, float* values,
                         uint64_t* num_survivors, EncodeStats* stats,
                         void* scratch, Stream stream) {
  Launch<Rule::kMomentum>(
      Pass<OfFloat32>{grad, correction, momentum, residual, n, 0, threshold,
                      indices, values, reinterpret_cast<Word*>(num_survivors),
                      stats, static_cast<TileScratch*>(scratch), 1},
      nonfinite, stream);
}

// Passes over arrays of a batch.
template <class Grad>
Pass<Grad> __device__ PassOf(const EncodeSpan& span, uint32_t* survivors,
                             uint64_t* count, uint64_t* tiles) {
  Pass<Grad> p = {};
  p.grad = Global(static_cast<const typename Grad::Element*>(span.grad));
  p.residual = Global(span.residual);
  p.momentum = span.momentum;
  p.n = span.num_elems;
  p.stats = &Global(span.result)->stats;
  p.scale = 1;
  p.indices = survivors;
  p.num_survivors = reinterpret_cast<Word*>(count);
  p.scratch = reinterpret_cast<TileScratch*>(tiles);
  return p;
}

template <class Grad>
struct ThresholdSpan {
  static __device__ Pass<Grad> Of(const EncodeSpan& span) {
    const ThresholdScratch s(Global(span.scratch), span.num_elems);
    Pass<Grad> p = PassOf<Grad>(span, s.survivors, s.count, s.tiles);
    p.threshold = span.threshold;
    return p;
  }
};

struct LargeSpan {
  static __device__ Pass<OfFloat32> Of(const EncodeSpan& span) {
    const TopKScratch s(Global(span.scratch), span.num_elems);
    Pass<OfFloat32> p =
        PassOf<OfFloat32>(span, s.indices, s.num_listed, s.tiles);
    p.threshold_at = s.threshold;
    p.values = s.values;
    return p;
  }
};

// What is to be 0 before an array's first kernel.
struct Cleared {
  uint64_t* words;
  size_t count;
  SpanResult* result;
};
struct ClearedForThreshold {
  static __device__ Cleared Of(const EncodeSpan& span) {
    const size_t n = span.num_elems;
    return {ThresholdScratch(Global(span.scratch), n).tiles,
            SparseScratchBytes(n) / 8, Global(span.result)};
  }
};
struct ClearedForTopK {
  static __device__ Cleared Of(const EncodeSpan& span) {
    const size_t n = span.num_elems;
    const TopKScratch s(Global(span.scratch), n);
    return {s.tiles, (SparseScratchBytes(n) + SelectClearedBytes(n)) / 8,
            Global(span.result)};
  }
};

template <class Make>
__global__ void BeginManyKernel(const __grid_constant__ Each<Make> source) {
  SampleTile<false>(source.batch);
  const Cleared cleared = source.Get();
  const Share share = source.ShareOf(cleared.count);
  if (share.is_none()) return;
  for (size_t i = share.thread(); i < cleared.count; i += share.num_threads()) {
    cleared.words[i] = 0;
  }
  if (share.thread() == 0) *cleared.result = {};
}

template <class Make>
void BeginMany(const EncodeBatch& batch, Stream stream) {
  BeginManyKernel<Make>
      <<<batch.num_tiles, kThreads, 0, StreamOf(stream)>>>(Each<Make>{batch});
}

template <class Grad>
void ThresholdMany(const EncodeBatch& batch, Stream stream) {
  BeginMany<ClearedForThreshold>(batch, stream);
  LaunchPass<Grad, Rule::kThreshold>(Each<ThresholdSpan<Grad>>{batch},
                                     batch.num_tiles, batch.is_aligned,
                                     batch.nonfinite, stream);
  WriteSignsMany(batch, stream);
}

}  // namespace

void ThresholdEncodeMany(const EncodeBatch& batch, Stream stream) {
  ThresholdMany<OfFloat32>(batch, stream);
}
void ThresholdEncodeManyFp16(const EncodeBatch& batch, Stream stream) {
  ThresholdMany<OfFp16>(batch, stream);
}
void ThresholdEncodeManyBf16(const EncodeBatch& batch, Stream stream) {
  ThresholdMany<OfBf16>(batch, stream);
}

void TopKEncodeMany(const EncodeBatch& batch, Stream stream) {
  BeginMany<ClearedForTopK>(batch, stream);
  SampleThresholdMany(batch, stream);
  LaunchPass<OfFloat32, Rule::kLarge>(Each<LargeSpan>{batch}, batch.num_tiles,
                                      batch.is_aligned, batch.nonfinite,
                                      stream);
  TakeLargestMany(batch, stream);
  WriteValuesMany(batch, stream);
}

SparseKernels Sparse() {
  return {ThresholdEncode<OfFloat32>, ThresholdEncode<OfFp16>,
          ThresholdEncode<OfBf16>, LargeValues, MomentumLargeValues};
}

}  // namespace telegrad::kernels::cuda
