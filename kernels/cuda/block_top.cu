#include "kernels/block_top.h"
#include "kernels/cuda/batch.cuh"
#include "kernels/cuda/compaction.cuh"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/stats.cuh"

// A thread block chooses of one block of elements at a time, which it keeps in
// registers; what is chosen is 1/64, so that the steps after it cost little.
namespace telegrad::kernels::cuda {
namespace {

// A thread has four elements in each of four groups.
constexpr unsigned kTopGroups = kTopBlock / (4 * kThreads);
constexpr unsigned kDigitBits = 8;
static_assert(1u << kDigitBits == kThreads, "a thread for each digit");
static_assert(kTopPartLanes == kThreads && kTopLanes == kWarp, "one for each");

struct TopArgs {
  const float* grad;
  float* residual;
  size_t n;
  TopRule rule;
  uint8_t* payload;
  TopScratch scratch;
};

struct ChooseShared {
  Word warp_sums[kWarps];
  unsigned counts[kThreads];
  uint32_t prefix;
  Word rank;
  uint16_t places[kMostTop];
  float values[kMostTop];
};

__device__ inline size_t SizeOfTopBlock(size_t block, size_t n) {
  const size_t left = n - block * kTopBlock;
  return left < kTopBlock ? left : kTopBlock;
}

// In the order of magnitudes; 0 for what does not exist.
__device__ inline uint32_t TopKeyOf(float v, bool exists) {
  return exists ? SendableBits(v) + 1 : 0;
}

// Four elements after the step's gradient. Past n: 0.
template <bool kVector, bool kZeroNonFinite>
__device__ inline void Decayed4(const TopArgs& a, size_t i, float (&v)[4],
                                Tally& counts) {
  float g[4];
  Load4<kVector>(a.grad, i, a.n, g);
  Load4<kVector>(a.residual, i, a.n, v);
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    v[j] = Value<kZeroNonFinite>(a.rule.decay * v[j], g[j], i + j, counts);
  }
}

// The key of the k-th largest, by digits; shared.rank becomes how many of those
// that have it are among the k.
__device__ inline uint32_t KthKey(const uint32_t (&keys)[kTopGroups][4],
                                  size_t k, ChooseShared& shared) {
  if (threadIdx.x == 0) {
    shared.prefix = 0;
    shared.rank = k;
  }
  unsigned known = 32;  // lower bits than this are not yet in the prefix
  for (int shift = 24; shift >= 0; shift -= kDigitBits) {
    shared.counts[threadIdx.x] = 0;
    __syncthreads();
    const uint32_t prefix = shared.prefix;
    const Word rank = shared.rank;
#pragma unroll
    for (unsigned q = 0; q < kTopGroups; ++q) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const uint32_t key = keys[q][j];
        if (known < 32 && key >> known != prefix) continue;
        atomicAdd(shared.counts + (key >> shift & (kThreads - 1)), 1u);
      }
    }
    __syncthreads();
    // Threads have digits from the highest downwards.
    const unsigned digit = kThreads - 1 - threadIdx.x;
    const Word own = shared.counts[digit];
    Word total = 0;
    const Word above = CountsBefore(own, shared.warp_sums, &total);
    if (above < rank && rank <= above + own) {
      shared.prefix = prefix << kDigitBits | digit;
      shared.rank = rank - above;
    }
    known = static_cast<unsigned>(shift);
    __syncthreads();
  }
  return shared.prefix;
}

// Lists the k chosen in shared memory, in ascending order of place.
__device__ inline void ListTop(const float (&v)[kTopGroups][4],
                               const uint32_t (&keys)[kTopGroups][4],
                               uint32_t kth, ChooseShared& shared) {
  const Word num_equal = shared.rank;
  // Larger ones in the upper half, equal ones in the lower.
  Word before = 0;
#pragma unroll
  for (unsigned q = 0; q < kTopGroups; ++q) {
    Word halves = 0;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      halves += keys[q][j] > kth ? Word{1} << 32 : keys[q][j] == kth ? 1 : 0;
    }
    Word total = 0;
    __syncthreads();
    Word at = before + CountsBefore(halves, shared.warp_sums, &total);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const Word equal = at & 0xFFFFFFFFu;
      const bool is_equal = keys[q][j] == kth;
      if (keys[q][j] > kth || (is_equal && equal < num_equal)) {
        const Word to = (at >> 32) + (equal < num_equal ? equal : num_equal);
        shared.places[to] = static_cast<uint16_t>(
            4 * (q * kThreads + threadIdx.x) + static_cast<unsigned>(j));
        shared.values[to] = IsFinite(v[q][j]) ? v[q][j] : 0.0f;
      }
      at += keys[q][j] > kth ? Word{1} << 32 : is_equal ? 1 : 0;
    }
    before += total;
  }
  __syncthreads();
}

// A warp's lanes, pairwise; for its first thread.
__device__ inline double SumOfWarp(double own) {
  for (unsigned step = kWarp / 2; step > 0; step /= 2) {
    own += __shfl_down_sync(0xFFFFFFFFu, own, step);
  }
  return own;
}

// The thread's lane of the sum of value(j) over j < k.
template <typename Value>
__device__ inline double OwnLane(size_t k, unsigned lane, Value value) {
  double own = 0;
  for (size_t j = lane; j < k; j += kWarp) own += value(j);
  return own;
}

// From shared memory: places to the payload, places and values to the scratch,
// and what the values add up to.
__device__ inline void WriteTop(const TopArgs& a, size_t block, size_t k,
                                const ChooseShared& shared) {
  const size_t first = block * a.rule.keep;
  for (size_t j = threadIdx.x; j < k; j += kThreads) {
    a.scratch.places[first + j] = shared.places[j];
    a.scratch.values[first + j] = shared.values[j];
  }
  uint8_t* const places = a.payload + kTopPlacesAt + first / 2 * 3;
  for (size_t j = 2 * threadIdx.x; j < k; j += 2 * kThreads) {
    const bool is_pair = j + 1 < k;
    const uint32_t bits =
        shared.places[j] |
        (is_pair ? static_cast<uint32_t>(shared.places[j + 1]) << 12 : 0);
    uint8_t* const at = places + j / 2 * 3;
    at[0] = static_cast<uint8_t>(bits);
    at[1] = static_cast<uint8_t>(bits >> 8);
    if (is_pair) at[2] = static_cast<uint8_t>(bits >> 16);
  }
  if (threadIdx.x >= kWarp) return;
  const double sum = SumOfWarp(OwnLane(k, threadIdx.x, [&](size_t j) {
    return static_cast<double>(shared.values[j]);
  }));
  const double squares = SumOfWarp(OwnLane(k, threadIdx.x, [&](size_t j) {
    const double value = static_cast<double>(shared.values[j]);
    return value * value;
  }));
  if (threadIdx.x != 0) return;
  a.scratch.parts[block].sums[0] = sum;
  a.scratch.parts[block].sums[1] = squares;
}

template <bool kVector, bool kZeroNonFinite>
__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    ChooseTopKernel(TopArgs a, EncodeStats* stats) {
  __shared__ ChooseShared shared;
  Tally counts;
  for (size_t block = blockIdx.x; block < NumTopBlocks(a.n);
       block += gridDim.x) {
    float v[kTopGroups][4];
    uint32_t keys[kTopGroups][4];
    const size_t from = block * kTopBlock + 4 * threadIdx.x;
#pragma unroll
    for (unsigned q = 0; q < kTopGroups; ++q) {
      Decayed4<kVector, kZeroNonFinite>(a, from + q * 4 * kThreads, v[q],
                                        counts);
    }
#pragma unroll
    for (unsigned q = 0; q < kTopGroups; ++q) {
      const size_t i = from + q * 4 * kThreads;
      Store4<kVector>(v[q], i, a.n, a.residual);
#pragma unroll
      for (int j = 0; j < 4; ++j) keys[q][j] = TopKeyOf(v[q][j], i + j < a.n);
    }
    const size_t k = TopOfBlock(SizeOfTopBlock(block, a.n), a.rule.keep);
    const uint32_t kth = KthKey(keys, k, shared);
    ListTop(v, keys, kth, shared);
    WriteTop(a, block, k, shared);
    // What is shared is the next block's.
    __syncthreads();
  }
  AddStats(counts, stats);
}

// The sum of part(b) over all blocks of elements; one thread block.
template <typename Part>
__device__ inline double SumOfParts(size_t num_blocks, double* lanes,
                                    Part part) {
  double own = 0;
  for (size_t b = threadIdx.x; b < num_blocks; b += kThreads) own += part(b);
  __syncthreads();
  lanes[threadIdx.x] = own;
  for (unsigned width = kThreads / 2; width > 0; width /= 2) {
    __syncthreads();
    if (threadIdx.x < width) lanes[threadIdx.x] += lanes[threadIdx.x + width];
  }
  __syncthreads();
  return lanes[0];
}

__global__ void TopBoundsKernel(TopArgs a) {
  __shared__ double lanes[kThreads];
  const TopPart* const parts = a.scratch.parts;
  const size_t num_blocks = NumTopBlocks(a.n);
  const double sum =
      SumOfParts(num_blocks, lanes, [=](size_t b) { return parts[b].sums[0]; });
  const double squares =
      SumOfParts(num_blocks, lanes, [=](size_t b) { return parts[b].sums[1]; });
  if (threadIdx.x != 0) return;
  *a.scratch.bounds = TopBoundsOf(sum, squares, NumTop(a.n, a.rule.keep));
}

// A warp has a block of elements.
__global__ void TopCodesKernel(TopArgs a) {
  const unsigned lane = threadIdx.x % kWarp;
  const TopBounds bounds = *a.scratch.bounds;
  uint8_t* const codes = a.payload + TopCodesAt(NumTop(a.n, a.rule.keep));
  for (size_t block = GlobalThread() / kWarp; block < NumTopBlocks(a.n);
       block += NumThreads() / kWarp) {
    const size_t k = TopOfBlock(SizeOfTopBlock(block, a.n), a.rule.keep);
    const size_t first = block * a.rule.keep;
    double sums[kTopBins] = {};
    uint32_t counts[kTopBins] = {};
    for (size_t j = 0; j < k; j += kWarp) {
      const bool exists = j + lane < k;
      const float w = exists ? a.scratch.values[first + j + lane] : 0.0f;
      const uint32_t code = exists ? TopCodeOf(w, bounds) : 0;
#pragma unroll
      for (uint32_t bin = 0; bin < kTopBins; ++bin) {
        const bool is_in = exists && code == bin;
        sums[bin] += is_in ? static_cast<double>(w) : 0.0;
        counts[bin] += __popc(__ballot_sync(0xFFFFFFFFu, is_in));
      }
      uint32_t byte = code << 2 * (lane % 4);
      byte |= __shfl_xor_sync(0xFFFFFFFFu, byte, 1);
      byte |= __shfl_xor_sync(0xFFFFFFFFu, byte, 2);
      if (exists && lane % 4 == 0) {
        codes[(first + j + lane) / 4] = static_cast<uint8_t>(byte);
      }
    }
#pragma unroll
    for (uint32_t bin = 0; bin < kTopBins; ++bin) {
      const double sum = SumOfWarp(sums[bin]);
      if (lane != 0) continue;
      a.scratch.parts[block].sums[bin] = sum;
      a.scratch.parts[block].counts[bin] = counts[bin];
    }
  }
}

__global__ void TopLevelsKernel(TopArgs a) {
  __shared__ double lanes[kThreads];
  const TopPart* const parts = a.scratch.parts;
  const size_t num_blocks = NumTopBlocks(a.n);
  for (uint32_t bin = 0; bin < kTopBins; ++bin) {
    const double sum = SumOfParts(num_blocks, lanes,
                                  [=](size_t b) { return parts[b].sums[bin]; });
    // Whole numbers, exact.
    const double count = SumOfParts(num_blocks, lanes, [=](size_t b) {
      return static_cast<double>(parts[b].counts[bin]);
    });
    if (threadIdx.x != 0) continue;
    reinterpret_cast<float*>(a.payload)[bin] =
        TopLevelOf(sum, static_cast<uint64_t>(count));
  }
}

__global__ void SubtractTopKernel(TopArgs a, EncodeStats* stats) {
  const size_t num_top = NumTop(a.n, a.rule.keep);
  const uint8_t* const codes = a.payload + TopCodesAt(num_top);
  Tally counts;
  for (size_t j = GlobalThread(); j < num_top; j += NumThreads()) {
    const float level =
        reinterpret_cast<const float*>(a.payload)[TopCodeAt(codes, j)];
    a.residual[j / a.rule.keep * kTopBlock + a.scratch.places[j]] -= level;
    counts.num_nonzero += level != 0 ? 1 : 0;
  }
  AddStats(counts, stats);
}

template <bool kAdd>
__global__ void PutTopKernel(const uint8_t* payload, size_t n, size_t keep,
                             float* out) {
  const size_t num_top = NumTop(n, keep);
  const uint8_t* const codes = payload + TopCodesAt(num_top);
  for (size_t j = GlobalThread(); j < num_top; j += NumThreads()) {
    const size_t i =
        j / keep * kTopBlock + TopPlaceAt(payload + kTopPlacesAt, j);
    if (i >= n) continue;
    const float level =
        reinterpret_cast<const float*>(payload)[TopCodeAt(codes, j)];
    out[i] = kAdd ? out[i] + level : level;
  }
}

static_assert(kDecodeTile % kTopBlock == 0, "a tile is whole blocks");

__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    TopDecodeManyKernel(const __grid_constant__ DecodeBatch batch) {
  const DecodeTile tile = TileOf(batch);
  ClearTile(batch, tile);
  __syncthreads();
  const size_t n = tile.span->num_elems;
  const size_t keep = tile.span->k;
  const size_t num_top = NumTop(n, keep);
  const uint8_t* const codes = tile.codes + TopCodesAt(num_top);
  const size_t end = tile.begin + tile.n;
  const size_t last = end == n ? num_top : end / kTopBlock * keep;
  for (size_t j = tile.begin / kTopBlock * keep + threadIdx.x; j < last;
       j += blockDim.x) {
    const size_t i =
        j / keep * kTopBlock + TopPlaceAt(tile.codes + kTopPlacesAt, j);
    if (i >= n) continue;
    const float level =
        reinterpret_cast<const float*>(tile.codes)[TopCodeAt(codes, j)];
    tile.out.StoreOne(tile.Scaled(level), i);
  }
}

void TopEncode(const float* grad, float* residual, size_t n, TopRule rule,
               NonFinite nonfinite, uint8_t* payload, EncodeStats* stats,
               void* scratch, Stream stream) {
  if (n == 0) return;
  const TopArgs args = {grad, residual, n,
                        rule, payload,  TopScratch(scratch, n, rule.keep)};
  const bool is_zero = nonfinite == NonFinite::kZero;
  const bool is_vector = IsAligned(grad, 16) && IsAligned(residual, 16);
  auto* const choose = is_vector ? (is_zero ? ChooseTopKernel<true, true>
                                            : ChooseTopKernel<true, false>)
                       : is_zero ? ChooseTopKernel<false, true>
                                 : ChooseTopKernel<false, false>;
  const cudaStream_t on = StreamOf(stream);
  const size_t num_blocks = NumTopBlocks(n);
  choose<<<GridFor(num_blocks * kThreads), kThreads, 0, on>>>(args, stats);
  TopBoundsKernel<<<1, kThreads, 0, on>>>(args);
  TopCodesKernel<<<GridFor(num_blocks * kWarp), kThreads, 0, on>>>(args);
  TopLevelsKernel<<<1, kThreads, 0, on>>>(args);
  SubtractTopKernel<<<GridFor(NumTop(n, rule.keep)), kThreads, 0, on>>>(args,
                                                                        stats);
}

template <bool kAdd>
void TopDecode(const uint8_t* payload, size_t n, size_t keep, float* out,
               Stream stream) {
  if (n == 0) return;
  const cudaStream_t on = StreamOf(stream);
  if (!kAdd) cudaMemsetAsync(out, 0, 4 * n, on);
  PutTopKernel<kAdd>
      <<<GridFor(NumTop(n, keep)), kThreads, 0, on>>>(payload, n, keep, out);
}

}  // namespace

void TopDecodeMany(const DecodeBatch& batch, Stream stream) {
  LaunchDecodes(batch, TopDecodeManyKernel, TopDecodeManyKernel, stream);
}

BlockTopKernels BlockTop() {
  return {TopEncode, TopDecode<false>, TopDecode<true>};
}

}  // namespace telegrad::kernels::cuda
