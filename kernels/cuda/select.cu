#include "kernels/cuda/arrays.cuh"
#include "kernels/cuda/compaction.cuh"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/radix_search.cuh"
#include "kernels/cuda/sparse_many.h"
#include "kernels/select.h"
#include "kernels/sparse_scratch.h"

namespace telegrad::kernels::cuda {
namespace {

static_assert(kSelectTile == 4 * kThreads, "four elements for a thread");

__device__ inline float ValueAt(const SampledValues& v, float scale, size_t i) {
  if (v.momentum == nullptr) return v.residual[i] + v.grad[i];
  const float decayed = v.correction.rate * v.momentum[i];
  return v.residual[i] + (decayed + scale * v.grad[i]);
}

struct Sampling {
  SampledValues values;
  size_t step;
  size_t size;
  size_t rank;
  uint32_t* sample;
  State* state;
  float* threshold;
};

template <class Source>
__global__ void SampleKernel(const __grid_constant__ Source source) {
  const Sampling& s = source.Get();
  const Share share = source.ShareOf(s.size);
  if (share.is_none()) return;
  const float scale = ScaleAt(s.values.correction.scale);
  uint32_t most = 0;
  uint32_t not_least = 0;
  for (size_t j = share.thread(); j < s.size; j += share.num_threads()) {
    const size_t i = SampleAt(j / kSampleRun, s.step) + j % kSampleRun;
    const uint32_t bits = SendableBits(ValueAt(s.values, scale, i));
    s.sample[j] = bits;
    most = bits > most ? bits : most;
    not_least = ~bits > not_least ? ~bits : not_least;
  }
  for (unsigned away = kWarp / 2; away > 0; away /= 2) {
    most = max(most, __shfl_down_sync(0xFFFFFFFFu, most, away));
    not_least = max(not_least, __shfl_down_sync(0xFFFFFFFFu, not_least, away));
  }
  if (threadIdx.x % kWarp != 0 || not_least == 0) return;
  atomicMax(&s.state->most, most);
  atomicMax(&s.state->not_least, not_least);
}

template <class Source>
__global__ void SampleThresholdKernel(const __grid_constant__ Source source) {
  __shared__ Shared shared;
  const Sampling& s = source.Get();
  const Share share = source.ShareOf(s.size / 16);
  if (share.is_none()) return;
  const uint32_t least = ~s.state->not_least;
  const Window window = {least, BitWidth(s.state->most - least), s.rank};
  const uint32_t* const sample = s.sample;
  const auto bits_at = [sample](size_t i) { return sample[i]; };
  if (!RadixPass(bits_at, s.size, window, share, s.state, shared)) return;
  __syncthreads();
  if (threadIdx.x == 0) {
    *s.threshold = __uint_as_float(max(Peek(&s.state->window.from), 1u));
  }
}

struct Selection {
  HowMany how;
  Candidates candidates;
  Taken taken;
  State* state;
  TileScratch* tiles;
};

// What is chosen from.
struct Choice {
  const float* values;
  size_t size;
  size_t rank;  // 0: all are taken
  bool is_list;
};

__device__ inline Choice ChoiceOf(const HowMany& how, const Candidates& c) {
  const size_t count = *c.count;
  if (count < how.fewest) {
    return {c.residual, c.n, how.k < c.n ? how.k : c.n, false};
  }
  return {c.values, count, count > how.most ? how.k : 0, true};
}

template <class Source>
__global__ void LargestKernel(const __grid_constant__ Source source,
                              bool is_first) {
  __shared__ Shared shared;
  const Selection& s = source.Get();
  const Share share = source.ShareOf(s.candidates.n / 16);
  const Choice choice = ChoiceOf(s.how, s.candidates);
  if (choice.rank == 0 || share.is_none()) return;
  const Window all = {0, kMagnitudeBits, choice.rank};
  const float* const values = choice.values;
  const auto bits_at = [values](size_t i) { return SendableBits(values[i]); };
  RadixPass(bits_at, choice.size, is_first ? all : s.state->window, share,
            s.state, shared);
}

// Counts of a tile's elements that are larger than the k-th and that equal it,
// in the upper and the lower half of a word; for tiles that look back with 31
// bits each.
constexpr unsigned kPairBits = 31;
__device__ inline Word PackPair(Word halves) {
  return halves >> 32 << kPairBits | (halves & 0xFFFFFFFFu);
}
__device__ inline Word UnpackPair(Word pair) {
  return pair >> kPairBits << 32 | (pair & ((Word{1} << kPairBits) - 1));
}

// The k-th largest; `num_equal` of those that equal it are taken.
struct Kth {
  uint32_t bits;
  Word num_equal;
};

__device__ inline Word HalfOf(uint32_t bits, const Kth& kth) {
  return bits > kth.bits                 ? Word{1} << 32
         : bits != 0 && bits == kth.bits ? 1
                                         : 0;
}

// Where an element is written, or how many are, when `halves` come before.
__device__ inline Word PlaceOf(Word halves, const Kth& kth) {
  const Word num_equal = halves & 0xFFFFFFFFu;
  return (halves >> 32) +
         (num_equal < kth.num_equal ? num_equal : kth.num_equal);
}

__device__ inline void Take(const Candidates& c, const Taken& taken,
                            const Choice& choice, size_t i, float value,
                            Word at) {
  const uint32_t index =
      choice.is_list ? c.indices[i] : static_cast<uint32_t>(i);
  taken.indices[at] = index;
  taken.values[at] = value;
  c.residual[index] = 0;
  if (c.momentum != nullptr) c.momentum[index] = 0;
}

__device__ inline void SetCount(Word count, const Taken& taken) {
  *taken.count = count;
  taken.stats->num_nonzero = count;
}

template <class Source>
__global__ void TakeKernel(const __grid_constant__ Source source) {
  __shared__ Word warp_sums[kWarps];
  __shared__ Word shared_before;
  __shared__ Word shared_tile;
  const Selection& s = source.Get();
  const Choice choice = ChoiceOf(s.how, s.candidates);
  const Kth kth = choice.rank == 0
                      ? Kth{0, 0}
                      : Kth{s.state->window.from, s.state->window.rank};
  const size_t num_tiles = (choice.size + kSelectTile - 1) / kSelectTile;
  for (;;) {
    const size_t tile = NextTile(s.tiles, shared_tile);
    if (tile >= num_tiles) break;
    const size_t first = tile * kSelectTile + 4 * threadIdx.x;
    float v[4];
    Load4<false>(choice.values, first, choice.size, v);
    Word halves = 0;
#pragma unroll
    for (int j = 0; j < 4; ++j) halves += HalfOf(SendableBits(v[j]), kth);
    Word total = 0;
    const Word in_tile = CountsBefore(halves, warp_sums, &total);
    const Word before = UnpackPair(
        CountInTurn(tile, PackPair(total), s.tiles->tiles, shared_before));
    Word at = before + in_tile;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const Word half = HalfOf(SendableBits(v[j]), kth);
      const bool is_taken = PlaceOf(at + half, kth) != PlaceOf(at, kth);
      if (is_taken) {
        Take(s.candidates, s.taken, choice, first + j, v[j], PlaceOf(at, kth));
      }
      at += half;
    }
    if (threadIdx.x == 0 && tile + 1 == num_tiles) {
      SetCount(PlaceOf(before + total, kth), s.taken);
    }
  }
}

// A thread has four lanes, which lie together.
constexpr unsigned kOwnLanes = kClipLanes / kThreads;
static_assert(kOwnLanes == 4, "an access is 16 bytes");

// The sum of all lanes.
__device__ inline double SumOfLanes(const double (&own)[kOwnLanes],
                                    double (&lanes)[kClipLanes]) {
  __syncthreads();
#pragma unroll
  for (unsigned j = 0; j < kOwnLanes; ++j) {
    lanes[kOwnLanes * threadIdx.x + j] = own[j];
  }
  for (unsigned width = kClipLanes / 2; width > 0; width /= 2) {
    __syncthreads();
    for (unsigned l = threadIdx.x; l < width; l += kThreads) {
      lanes[l] += lanes[l + width];
    }
  }
  __syncthreads();
  return lanes[0];
}

template <bool kVector>
__global__ void SquareKernel(const float* x, size_t n, size_t num_tiles,
                             double* squares) {
  __shared__ double lanes[kClipLanes];
  for (size_t tile = blockIdx.x; tile < num_tiles; tile += gridDim.x) {
    double own[kOwnLanes] = {};
    for (size_t i = kOwnLanes * threadIdx.x; i < kClipTile; i += kClipLanes) {
      float v[4];
      Load4<kVector>(x, tile * kClipTile + i, n, v);
#pragma unroll
      for (unsigned j = 0; j < kOwnLanes; ++j) {
        const double value = IsFinite(v[j]) ? static_cast<double>(v[j]) : 0.0;
        own[j] += value * value;
      }
    }
    const double sum = SumOfLanes(own, lanes);
    if (threadIdx.x == 0) squares[tile] = sum;
  }
}

__global__ void ClipKernel(const double* squares, size_t num_tiles, double clip,
                           float* scale) {
  __shared__ double lanes[kClipLanes];
  double own[kOwnLanes] = {};
#pragma unroll
  for (unsigned j = 0; j < kOwnLanes; ++j) {
    for (size_t t = kOwnLanes * threadIdx.x + j; t < num_tiles;
         t += kClipLanes) {
      own[j] += squares[t];
    }
  }
  const double norm = sqrt(SumOfLanes(own, lanes));
  if (threadIdx.x == 0) {
    *scale = norm <= clip ? 1.0f : static_cast<float>(clip / norm);
  }
}

// SelectScratchBytes as the state, the tiles and the sample.
struct Scratch {
  TELEGRAD_HOST_DEVICE Scratch(void* scratch, size_t n)
      : state(static_cast<State*>(scratch)),
        tiles(reinterpret_cast<TileScratch*>(state + 1)),
        sample(reinterpret_cast<uint32_t*>(static_cast<char*>(scratch) +
                                           SelectClearedBytes(n))) {}
  State* state;
  TileScratch* tiles;
  uint32_t* sample;
};

template <class Source>
void LaunchSample(const Source& source, unsigned sample_grid,
                  unsigned threshold_grid, Stream stream) {
  SampleKernel<Source><<<sample_grid, kThreads, 0, StreamOf(stream)>>>(source);
  SampleThresholdKernel<Source>
      <<<threshold_grid, kThreads, 0, StreamOf(stream)>>>(source);
}

void SampleThreshold(SampledValues values, size_t n, size_t wanted,
                     bool generous, float* threshold, void* scratch,
                     Stream stream) {
  const Scratch s(scratch, n);
  const size_t size = SampleSize(n);
  const One<Sampling> source = {{values, SampleStep(n), size,
                                 SampleRank(size, n, wanted, generous),
                                 s.sample, s.state, threshold}};
  cudaMemsetAsync(s.state, 0, sizeof(State), StreamOf(stream));
  LaunchSample(source, GridFor(size), GridFor(size / 16), stream);
}

template <class Source>
void LaunchTake(const Source& source, unsigned largest_grid, unsigned take_grid,
                Stream stream) {
  for (uint32_t bits = 0; bits < kMagnitudeBits; bits += kSelectBinBits) {
    LargestKernel<Source>
        <<<largest_grid, kThreads, 0, StreamOf(stream)>>>(source, bits == 0);
  }
  TakeKernel<Source><<<take_grid, kThreads, 0, StreamOf(stream)>>>(source);
}

void TakeLargest(HowMany how_many, Candidates candidates, Taken taken,
                 void* scratch, Stream stream) {
  const Scratch s(scratch, candidates.n);
  const size_t n = candidates.n;
  cudaMemsetAsync(scratch, 0, SelectClearedBytes(n), StreamOf(stream));
  LaunchTake(One<Selection>{{how_many, candidates, taken, s.state, s.tiles}},
             GridFor(n / 16), GridFor(n / 4), stream);
}

// Arrays of a batch.
struct SampledSpan {
  static __device__ Sampling Of(const EncodeSpan& span) {
    const size_t n = span.num_elems;
    const TopKScratch lists(Global(span.scratch), n);
    const Scratch s(lists.work, n);
    SampledValues values;
    values.grad = Global(static_cast<const float*>(span.grad));
    values.residual = Global(span.residual);
    return {values,   SampleStep(n), SampleSize(n),  span.sample_rank,
            s.sample, s.state,       lists.threshold};
  }
};
struct SelectedSpan {
  static __device__ Selection Of(const EncodeSpan& span) {
    const size_t n = span.num_elems;
    const TopKScratch lists(Global(span.scratch), n);
    const Scratch s(lists.work, n);
    auto* const values = reinterpret_cast<float*>(
        Global(span.codes) + ListAt(SparseContent::kValues, 0));
    return {HowManyOf(span.k, span.is_sampled),
            {lists.indices, lists.values, lists.num_listed,
             Global(span.residual), span.momentum, n},
            {lists.kept, values, lists.num_kept, &Global(span.result)->stats},
            s.state,
            s.tiles};
  }
};

void ClipScale(const float* x, size_t n, double clip, float* scale,
               void* scratch, Stream stream) {
  const size_t num_tiles = (n + kClipTile - 1) / kClipTile;
  auto* const squares = static_cast<double*>(scratch);
  auto* const kernel =
      IsAligned(x, 16) ? SquareKernel<true> : SquareKernel<false>;
  kernel<<<GridFor(num_tiles * kThreads), kThreads, 0, StreamOf(stream)>>>(
      x, n, num_tiles, squares);
  ClipKernel<<<1, kThreads, 0, StreamOf(stream)>>>(squares, num_tiles, clip,
                                                   scale);
}

}  // namespace

void SampleThresholdMany(const EncodeBatch& batch, Stream stream) {
  LaunchSample(Each<SampledSpan>{batch}, batch.num_tiles, batch.num_tiles,
               stream);
}

void TakeLargestMany(const EncodeBatch& batch, Stream stream) {
  LaunchTake(Each<SelectedSpan>{batch}, batch.num_tiles, batch.num_tiles,
             stream);
}

SelectKernels Select() { return {SampleThreshold, TakeLargest, ClipScale}; }

}  // namespace telegrad::kernels::cuda
