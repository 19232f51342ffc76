#include "kernels/cuda/compaction.cuh"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/select.h"

namespace telegrad::kernels::cuda {
namespace {

constexpr uint32_t kBins = 1u << kSelectBinBits;
constexpr uint32_t kBinsPerThread = kBins / kThreads;
constexpr uint32_t kMagnitudeBits = 31;

// Magnitudes [from, from + 2^width) have, as bits, the one that is looked for;
// it is the rank-th largest of those.
struct Window {
  uint32_t from;
  uint32_t width;
  Word rank;
};

// What is kept between kernels: all 0 at first.
struct State {
  Window window;
  unsigned num_done;   // blocks of a kernel
  uint32_t not_least;  // bits of a sample's smallest, inverted
  uint32_t most;
  uint32_t unused;
  uint32_t counts[kBins];
};
static_assert(sizeof(State) + sizeof(TileScratch) <= kSelectStateBytes &&
                  sizeof(State) % 8 == 0,
              "room for the state and the first tile");
static_assert(kSelectTile == 4 * kThreads, "four elements for a thread");

__device__ inline uint32_t Peek(const uint32_t* at) {
  return *static_cast<const volatile uint32_t*>(at);
}

__device__ inline uint32_t BitWidth(uint32_t bits) { return 32 - __clz(bits); }

struct Shared {
  uint32_t counts[kBins];
  Word warp_sums[kWarps];
  unsigned is_last;
};

// Whether all other blocks have added what they have.
__device__ inline bool IsLastBlock(State* state, Shared& shared) {
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    shared.is_last = atomicAdd(&state->num_done, 1u) + 1 == gridDim.x ? 1 : 0;
  }
  __syncthreads();
  __threadfence();
  return shared.is_last != 0;
}

// Narrows the window to the bin that has its rank-th; clears the counts.
__device__ inline void Narrow(Window window, uint32_t shift, State* state,
                              Shared& shared) {
  // Threads have bins from the highest downwards.
  const uint32_t end = kBins - threadIdx.x * kBinsPerThread;
  Word own = 0;
  for (uint32_t b = end - kBinsPerThread; b < end; ++b) {
    own += Peek(state->counts + b);
  }
  Word total = 0;
  Word above = CountsBefore(own, shared.warp_sums, &total);
  if (above < window.rank && window.rank <= above + own) {
    uint32_t bin = end - 1;
    for (; above + Peek(state->counts + bin) < window.rank; --bin) {
      above += Peek(state->counts + bin);
    }
    state->window = {window.from + (bin << shift), shift, window.rank - above};
  }
  for (uint32_t b = end - kBinsPerThread; b < end; ++b) state->counts[b] = 0;
  if (threadIdx.x == 0) state->num_done = 0;
}

// One digit of a search by radix, over bits_at(0) to bits_at(size - 1). Returns
// whether this block was the last, which has narrowed the state's window.
template <typename BitsAt>
__device__ inline bool RadixPass(BitsAt bits_at, size_t size, Window window,
                                 State* state, Shared& shared) {
  const uint32_t shift =
      window.width > kSelectBinBits ? window.width - kSelectBinBits : 0;
  for (uint32_t b = threadIdx.x; b < kBins; b += kThreads) shared.counts[b] = 0;
  __syncthreads();
  for (size_t i = GlobalThread(); i < size; i += NumThreads()) {
    const uint32_t above = bits_at(i) - window.from;
    if (above >> window.width == 0)
      atomicAdd(shared.counts + (above >> shift), 1u);
  }
  __syncthreads();
  for (uint32_t b = threadIdx.x; b < kBins; b += kThreads) {
    if (shared.counts[b] != 0) atomicAdd(state->counts + b, shared.counts[b]);
  }
  if (!IsLastBlock(state, shared)) return false;
  Narrow(window, shift, state, shared);
  return true;
}

__device__ inline float ValueAt(const SampledValues& v, float scale, size_t i) {
  if (v.momentum == nullptr) return v.residual[i] + v.grad[i];
  const float decayed = v.correction.rate * v.momentum[i];
  return v.residual[i] + (decayed + scale * v.grad[i]);
}

__global__ void SampleKernel(SampledValues values, size_t step, size_t size,
                             uint32_t* sample, State* state) {
  const float scale = ScaleAt(values.correction.scale);
  uint32_t most = 0;
  uint32_t not_least = 0;
  for (size_t j = GlobalThread(); j < size; j += NumThreads()) {
    const size_t i = SampleAt(j / kSampleRun, step) + j % kSampleRun;
    const uint32_t bits = SendableBits(ValueAt(values, scale, i));
    sample[j] = bits;
    most = bits > most ? bits : most;
    not_least = ~bits > not_least ? ~bits : not_least;
  }
  for (unsigned away = kWarp / 2; away > 0; away /= 2) {
    most = max(most, __shfl_down_sync(0xFFFFFFFFu, most, away));
    not_least = max(not_least, __shfl_down_sync(0xFFFFFFFFu, not_least, away));
  }
  if (threadIdx.x % kWarp != 0 || not_least == 0) return;
  atomicMax(&state->most, most);
  atomicMax(&state->not_least, not_least);
}

__global__ void SampleThresholdKernel(const uint32_t* sample, size_t size,
                                      size_t rank, State* state,
                                      float* threshold) {
  __shared__ Shared shared;
  const uint32_t least = ~state->not_least;
  const Window window = {least, BitWidth(state->most - least), rank};
  const auto bits_at = [sample](size_t i) { return sample[i]; };
  if (!RadixPass(bits_at, size, window, state, shared)) return;
  __syncthreads();
  if (threadIdx.x == 0) {
    *threshold = __uint_as_float(max(Peek(&state->window.from), 1u));
  }
}

// What is chosen from.
struct Source {
  const float* values;
  size_t size;
  size_t rank;  // 0: all are taken
  bool is_list;
};

__device__ inline Source SourceOf(const HowMany& how, const Candidates& c) {
  const size_t count = *c.count;
  if (count < how.fewest) {
    return {c.residual, c.n, how.k < c.n ? how.k : c.n, false};
  }
  return {c.values, count, count > how.most ? how.k : 0, true};
}

__global__ void LargestKernel(HowMany how, Candidates candidates, bool is_first,
                              State* state) {
  __shared__ Shared shared;
  const Source source = SourceOf(how, candidates);
  if (source.rank == 0) return;
  const Window all = {0, kMagnitudeBits, source.rank};
  const float* const values = source.values;
  const auto bits_at = [values](size_t i) { return SendableBits(values[i]); };
  RadixPass(bits_at, source.size, is_first ? all : state->window, state,
            shared);
}

// Of a tile's elements, which are larger than the k-th and which equal, in the
// upper and the lower half of a word; for tiles that look back with 31 bits
// each.
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
                            const Source& source, size_t i, float value,
                            Word at) {
  const uint32_t index =
      source.is_list ? c.indices[i] : static_cast<uint32_t>(i);
  taken.indices[at] = index;
  taken.values[at] = value;
  c.residual[index] = 0;
  if (c.momentum != nullptr) c.momentum[index] = 0;
}

__device__ inline void SetCount(Word count, const Taken& taken) {
  *taken.count = count;
  taken.stats->num_nonzero = count;
}

__global__ void TakeKernel(HowMany how, Candidates candidates, Taken taken,
                           const State* state, TileScratch* scratch) {
  __shared__ Word warp_sums[kWarps];
  __shared__ Word shared_before;
  __shared__ Word shared_tile;
  const Source source = SourceOf(how, candidates);
  const Kth kth = source.rank == 0
                      ? Kth{0, 0}
                      : Kth{state->window.from, state->window.rank};
  const size_t num_tiles = (source.size + kSelectTile - 1) / kSelectTile;
  for (;;) {
    const size_t tile = NextTile(scratch, shared_tile);
    if (tile >= num_tiles) break;
    const size_t first = tile * kSelectTile + 4 * threadIdx.x;
    float v[4];
    Load4<false>(source.values, first, source.size, v);
    Word halves = 0;
#pragma unroll
    for (int j = 0; j < 4; ++j) halves += HalfOf(SendableBits(v[j]), kth);
    Word total = 0;
    const Word in_tile = CountsBefore(halves, warp_sums, &total);
    const Word before = UnpackPair(
        CountInTurn(tile, PackPair(total), scratch->tiles, shared_before));
    Word at = before + in_tile;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const Word half = HalfOf(SendableBits(v[j]), kth);
      const bool is_taken = PlaceOf(at + half, kth) != PlaceOf(at, kth);
      if (is_taken) {
        Take(candidates, taken, source, first + j, v[j], PlaceOf(at, kth));
      }
      at += half;
    }
    if (threadIdx.x == 0 && tile + 1 == num_tiles) {
      SetCount(PlaceOf(before + total, kth), taken);
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

// Of SelectScratchBytes: the state, the tiles and the sample.
struct Scratch {
  Scratch(void* scratch, size_t n)
      : state(static_cast<State*>(scratch)),
        tiles(reinterpret_cast<TileScratch*>(state + 1)),
        sample(reinterpret_cast<uint32_t*>(static_cast<char*>(scratch) +
                                           SelectScratchBytes(n) -
                                           4 * MaxSample(n))) {}
  State* state;
  TileScratch* tiles;
  uint32_t* sample;
};

void SampleThreshold(SampledValues values, size_t n, size_t wanted,
                     bool generous, float* threshold, void* scratch,
                     Stream stream) {
  const Scratch s(scratch, n);
  const size_t size = SampleSize(n);
  cudaMemsetAsync(s.state, 0, sizeof(State), StreamOf(stream));
  SampleKernel<<<GridFor(size), kThreads, 0, StreamOf(stream)>>>(
      values, SampleStep(n), size, s.sample, s.state);
  SampleThresholdKernel<<<GridFor(size / 16), kThreads, 0, StreamOf(stream)>>>(
      s.sample, size, SampleRank(size, n, wanted, generous), s.state,
      threshold);
}

void TakeLargest(HowMany how_many, Candidates candidates, Taken taken,
                 void* scratch, Stream stream) {
  const Scratch s(scratch, candidates.n);
  cudaMemsetAsync(
      scratch, 0,
      SelectScratchBytes(candidates.n) - 4 * MaxSample(candidates.n),
      StreamOf(stream));
  const unsigned grid = GridFor(candidates.n / 16);
  for (uint32_t bits = 0; bits < kMagnitudeBits; bits += kSelectBinBits) {
    LargestKernel<<<grid, kThreads, 0, StreamOf(stream)>>>(how_many, candidates,
                                                           bits == 0, s.state);
  }
  TakeKernel<<<GridFor(candidates.n / 4), kThreads, 0, StreamOf(stream)>>>(
      how_many, candidates, taken, s.state, s.tiles);
}

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

SelectKernels Select() { return {SampleThreshold, TakeLargest, ClipScale}; }

}  // namespace telegrad::kernels::cuda
