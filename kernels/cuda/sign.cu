#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/planes.cuh"
#include "kernels/sign.h"

// A thread takes four elements at a time: 16 bytes of each array. Two threads
// share a byte of bits, which the even one writes.
namespace telegrad::kernels::cuda {
namespace {

// SignBytes is for the host only.
__device__ inline size_t BytesOfSigns(size_t n) {
  return (n + kSignsPerWord - 1) / kSignsPerWord * 4;
}

// Little-endian floats at any address.
__device__ inline float LoadFloat(const uint8_t* bytes, size_t index) {
  return __uint_as_float(LoadWord(bytes, index));
}
__device__ inline void StoreFloat(float value, size_t index, uint8_t* bytes) {
  StoreWord(__float_as_uint(value), index, bytes);
}

struct Counts {
  uint64_t num_nonzero = 0;
  uint32_t num_nonfinite = 0;
  uint64_t first_nonfinite = kNoIndex;
};

// Residual plus gradient of element i, by the rule for what is not finite.
template <bool kZero>
__device__ inline float Value(float residual, float grad, size_t i,
                              Counts& counts) {
  const float v = residual + grad;
  if (!kZero || IsFinite(v)) return v;
  ++counts.num_nonfinite;
  if (i < counts.first_nonfinite) counts.first_nonfinite = i;
  return IsFinite(residual) ? residual + 0.0f : 0.0f;
}

// Makes bytes of the four bits that each thread of a whole warp has, the first
// highest; `is_there`: whether this thread's byte exists.
__device__ inline void StoreBits(uint32_t bits, size_t i, bool is_there,
                                 uint8_t* to) {
  const uint32_t next = __shfl_down_sync(0xFFFFFFFFu, bits, 1);
  if (is_there && threadIdx.x % 2 == 0) {
    to[i / 8] = static_cast<uint8_t>(bits << 4 | next);
  }
}

// The four bits of elements [i, i + 4).
__device__ inline uint32_t LoadBits(const uint8_t* from, size_t i) {
  return from[i / 8] >> (4 - i % 8) & 15u;
}

template <bool kVector, bool kZero>
__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    OneBitEncodeKernel(const float* __restrict__ grad,
                       float* __restrict__ residual, size_t n, float threshold,
                       float magnitude, uint8_t* __restrict__ payload,
                       EncodeStats* stats) {
  Counts counts;
  const size_t end = 8 * BytesOfSigns(n);
  const unsigned lane = threadIdx.x % kWarp;
  // The same turns for all threads of a warp.
  for (size_t i = 4 * GlobalThread(); i - 4 * lane < end;
       i += 4 * NumThreads()) {
    float g[4];
    float r[4];
    Load4<kVector>(grad, i, n, g);
    Load4<kVector>(residual, i, n, r);
    uint32_t bits = 0;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float v = Value<kZero>(r[j], g[j], i + j, counts);
      const bool is_above = v > threshold;
      r[j] = is_above ? v - magnitude : v + magnitude;
      bits = bits << 1 | (is_above && i + j < n ? 1u : 0u);
    }
    Store4<kVector>(r, i, n, residual);
    StoreBits(bits, i, i < end, payload);
  }
  if (GlobalThread() == 0) {
    counts.num_nonzero = n;
    StoreFloat(magnitude, BytesOfSigns(n) / 4, payload);
  }
  AddStats(counts.num_nonzero, counts.num_nonfinite, counts.first_nonfinite,
           stats);
}

// +-magnitude of elements [i, i + 4), onto what `out` holds or over it.
template <bool kVector, bool kAdd>
__device__ inline void DecodeFour(uint32_t bits, float magnitude, size_t i,
                                  size_t n, float* out) {
  float values[4] = {};
  if (kAdd) Load4<kVector>(out, i, n, values);
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const float value = (bits >> (3 - j) & 1u) != 0 ? magnitude : -magnitude;
    values[j] = kAdd ? values[j] + value : value;
  }
  Store4<kVector>(values, i, n, out);
}

template <bool kVector, bool kAdd>
__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    OneBitDecodeKernel(const uint8_t* __restrict__ payload, size_t n,
                       float* __restrict__ out) {
  const float magnitude = LoadFloat(payload, BytesOfSigns(n) / 4);
  for (size_t i = 4 * GlobalThread(); i < n; i += 4 * NumThreads()) {
    DecodeFour<kVector, kAdd>(LoadBits(payload, i), magnitude, i, n, out);
  }
}

constexpr int kMostPassPlanes = SignCountPlanes(kFramesPerPass);
constexpr int kMostPlanes = SignCountPlanes(kMaxSumContributors);

// A thread takes a word of each frame. A pass after the first adds to what
// `counts` holds.
template <int kPlanes>
__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    CountPackKernel(const __grid_constant__ Pass pass, size_t num_words,
                    uint32_t num_planes, uint8_t* counts) {
  for (size_t w = GlobalThread(); w < num_words; w += NumThreads()) {
    uint32_t planes[kPlanes] = {};
    for (uint32_t f = 0; f < pass.num_frames; ++f) {
      uint32_t carry = LoadWord(pass.frames[f], w);
#pragma unroll
      for (int p = 0; p < kPlanes; ++p) {
        const uint32_t next = planes[p] & carry;
        planes[p] ^= carry;
        carry = next;
      }
    }
    uint32_t carry = 0;
#pragma unroll
    for (int p = 0; p < kMostPlanes; ++p) {
      if (p >= num_planes) break;
      uint32_t word = p < kPlanes ? planes[p] : 0;
      if (!pass.is_first) {
        const uint32_t old = LoadWord(counts, p * num_words + w);
        const uint32_t next = (old & word) | (old & carry) | (word & carry);
        word ^= old ^ carry;
        carry = next;
      }
      StoreWord(word, p * num_words + w, counts);
    }
  }
}

template <bool kVector>
__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    CountDecodeKernel(const uint8_t* __restrict__ counts, uint32_t num_frames,
                      uint32_t num_planes, size_t n, float* __restrict__ out) {
  const size_t bytes = BytesOfSigns(n);
  for (size_t i = 4 * GlobalThread(); i < n; i += 4 * NumThreads()) {
    uint32_t count[4] = {};
    for (uint32_t p = 0; p < num_planes; ++p) {
      const uint32_t bits = LoadBits(counts + p * bytes, i);
#pragma unroll
      for (int j = 0; j < 4; ++j) count[j] |= (bits >> (3 - j) & 1u) << p;
    }
    float values[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      values[j] = static_cast<float>(2 * static_cast<int>(count[j]) -
                                     static_cast<int>(num_frames));
    }
    Store4<kVector>(values, i, n, out);
  }
}

// The first thread's mean magnitude of `m` elements; thread t has the sums of
// lanes 4t to 4t + 3. All threads of the block take part.
__device__ inline float MeanOfLanes(const float (&sums)[4], size_t m) {
  __shared__ float4 lanes[kThreads];
  lanes[threadIdx.x] = make_float4(sums[0], sums[1], sums[2], sums[3]);
  __syncthreads();
  if (threadIdx.x >= kWarp) return 0;
  const auto add = [](float4 a, float4 b) {
    return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
  };
  // Lanes l and l + 512, 256, 128 are 128, 64, 32 threads apart.
  float4 quarters[4];
#pragma unroll
  for (unsigned q = 0; q < 4; ++q) {
    const unsigned t = threadIdx.x + kWarp * q;
    quarters[q] = add(lanes[t], lanes[t + 4 * kWarp]);
  }
  float4 sum =
      add(add(quarters[0], quarters[2]), add(quarters[1], quarters[3]));
#pragma unroll
  for (unsigned step = kWarp / 2; step > 0; step /= 2) {
    sum = add(sum, make_float4(__shfl_down_sync(0xFFFFFFFFu, sum.x, step),
                               __shfl_down_sync(0xFFFFFFFFu, sum.y, step),
                               __shfl_down_sync(0xFFFFFFFFu, sum.z, step),
                               __shfl_down_sync(0xFFFFFFFFu, sum.w, step)));
  }
  const float total = (sum.x + sum.z) + (sum.y + sum.w);
  const float mean = total / static_cast<float>(m);
  constexpr float kLargest = 3.4028234663852886e38f;
  return mean <= kLargest ? mean : kLargest;
}

// The values of elements [i, i + 4); their magnitudes are added to `sums`.
template <bool kVector, bool kZero>
__device__ inline void LoadValues(const float* grad, const float* residual,
                                  size_t i, size_t end, float (&v)[4],
                                  float (&sums)[4], Counts& counts) {
  float g[4];
  Load4<kVector>(grad, i, end, g);
  Load4<kVector>(residual, i, end, v);
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    v[j] = Value<kZero>(v[j], g[j], i + j, counts);
    sums[j] += fabsf(v[j]);
  }
}

// Stores what +-scale leaves of elements [i, i + 4); returns their bits.
template <bool kVector>
__device__ inline uint32_t TakeSigns(float (&v)[4], float scale, size_t i,
                                     size_t end, float* residual) {
  uint32_t bits = 0;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const bool is_positive = v[j] >= 0;
    v[j] = is_positive ? v[j] - scale : v[j] + scale;
    bits = bits << 1 | (is_positive && i + j < end ? 1u : 0u);
  }
  Store4<kVector>(v, i, end, residual);
  return bits;
}

// A block of threads takes a block of elements, kRows times kSignLanes of them
// at most, and keeps its values in registers.
template <int kRows, bool kVector, bool kZero>
__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    BlockEncodeKernel(const float* __restrict__ grad,
                      float* __restrict__ residual, size_t n, size_t block,
                      size_t num_blocks, uint8_t* __restrict__ payload,
                      EncodeStats* stats) {
  __shared__ float scale;
  Counts counts;
  for (size_t b = blockIdx.x; b < num_blocks; b += gridDim.x) {
    const size_t end = min(n, (b + 1) * block);
    const size_t size = end - b * block;
    const size_t first = b * block + 4 * threadIdx.x;
    float v[kRows][4];
    float sums[4] = {};
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      LoadValues<kVector, kZero>(grad, residual, first + row * kSignLanes, end,
                                 v[row], sums, counts);
    }
    const float mean = MeanOfLanes(sums, size);
    if (threadIdx.x == 0) {
      scale = mean;
      StoreFloat(mean, b, payload);
      if (mean != 0) counts.num_nonzero += size;
    }
    __syncthreads();
    const size_t bits_end = b * block + 8 * BytesOfSigns(size);
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      const size_t i = first + row * kSignLanes;
      const uint32_t bits = TakeSigns<kVector>(v[row], scale, i, end, residual);
      StoreBits(bits, i, i < bits_end, payload + 4 * num_blocks);
    }
  }
  AddStats(counts.num_nonzero, counts.num_nonfinite, counts.first_nonfinite,
           stats);
}

template <bool kVector, bool kAdd>
__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    BlockDecodeKernel(const uint8_t* __restrict__ payload, size_t n,
                      uint32_t steps_per_block, size_t num_blocks,
                      float* __restrict__ out) {
  const uint8_t* const bits = payload + 4 * num_blocks;
  for (size_t i = 4 * GlobalThread(); i < n; i += 4 * NumThreads()) {
    // 32 bits suffice for 2^39 elements, and divide faster.
    const uint32_t step = static_cast<uint32_t>(i / kSignBlockStep);
    const float scale = LoadFloat(payload, step / steps_per_block);
    DecodeFour<kVector, kAdd>(LoadBits(bits, i), scale, i, n, out);
  }
}

void OneBitEncode(const float* grad, float* residual, size_t n, float threshold,
                  float magnitude, NonFinite nonfinite, uint8_t* payload,
                  EncodeStats* stats, Stream stream) {
  const bool is_vector = IsAligned(grad, 16) && IsAligned(residual, 16);
  const bool is_zero = nonfinite == NonFinite::kZero;
  auto* const kernel = is_vector ? (is_zero ? OneBitEncodeKernel<true, true>
                                            : OneBitEncodeKernel<true, false>)
                                 : (is_zero ? OneBitEncodeKernel<false, true>
                                            : OneBitEncodeKernel<false, false>);
  kernel<<<GridFor(2 * SignBytes(n)), kThreads, 0, StreamOf(stream)>>>(
      grad, residual, n, threshold, magnitude, payload, stats);
}

template <bool kAdd>
void OneBitDecode(const uint8_t* payload, size_t n, float* out, Stream stream) {
  if (n == 0) return;
  auto* const kernel = IsAligned(out, 16) ? OneBitDecodeKernel<true, kAdd>
                                          : OneBitDecodeKernel<false, kAdd>;
  kernel<<<GridFor((n + 3) / 4), kThreads, 0, StreamOf(stream)>>>(payload, n,
                                                                  out);
}

void CountPack(const uint8_t* const* frames, uint32_t num_frames, size_t n,
               uint8_t* counts, Stream stream) {
  if (n == 0) return;
  const size_t num_words = SignBytes(n) / 4;
  for (uint32_t from = 0; from < num_frames; from += kFramesPerPass) {
    Pass pass = {};
    const uint32_t left = num_frames - from;
    pass.num_frames = left < kFramesPerPass ? left : kFramesPerPass;
    pass.is_first = from == 0;
    for (uint32_t f = 0; f < pass.num_frames; ++f) {
      pass.frames[f] = frames[from + f];
    }
    auto* const kernel = pass.num_frames < 4 ? CountPackKernel<2>
                         : pass.num_frames < 16
                             ? CountPackKernel<4>
                             : CountPackKernel<kMostPassPlanes>;
    kernel<<<GridFor(num_words), kThreads, 0, StreamOf(stream)>>>(
        pass, num_words, SignCountPlanes(num_frames), counts);
  }
}

void CountDecode(const uint8_t* counts, uint32_t num_frames, size_t n,
                 float* out, Stream stream) {
  if (n == 0) return;
  auto* const kernel =
      IsAligned(out, 16) ? CountDecodeKernel<true> : CountDecodeKernel<false>;
  kernel<<<GridFor((n + 3) / 4), kThreads, 0, StreamOf(stream)>>>(
      counts, num_frames, SignCountPlanes(num_frames), n, out);
}

template <int kRows>
auto* BlockEncodeFor(bool is_vector, bool is_zero) {
  return is_vector ? (is_zero ? BlockEncodeKernel<kRows, true, true>
                              : BlockEncodeKernel<kRows, true, false>)
                   : (is_zero ? BlockEncodeKernel<kRows, false, true>
                              : BlockEncodeKernel<kRows, false, false>);
}

void BlockEncode(const float* grad, float* residual, size_t n, size_t block,
                 NonFinite nonfinite, uint8_t* payload, EncodeStats* stats,
                 Stream stream) {
  if (n == 0) return;
  const bool is_vector = IsAligned(grad, 16) && IsAligned(residual, 16);
  const bool is_zero = nonfinite == NonFinite::kZero;
  auto* const kernel =
      block <= kSignLanes       ? BlockEncodeFor<1>(is_vector, is_zero)
      : block <= 2 * kSignLanes ? BlockEncodeFor<2>(is_vector, is_zero)
      : block <= 4 * kSignLanes ? BlockEncodeFor<4>(is_vector, is_zero)
                                : BlockEncodeFor<8>(is_vector, is_zero);
  kernel<<<GridFor(kThreads * NumSignBlocks(n, block)), kThreads, 0,
           StreamOf(stream)>>>(grad, residual, n, block,
                               NumSignBlocks(n, block), payload, stats);
}

template <bool kAdd>
void BlockDecode(const uint8_t* payload, size_t n, size_t block, float* out,
                 Stream stream) {
  if (n == 0) return;
  auto* const kernel = IsAligned(out, 16) ? BlockDecodeKernel<true, kAdd>
                                          : BlockDecodeKernel<false, kAdd>;
  kernel<<<GridFor((n + 3) / 4), kThreads, 0, StreamOf(stream)>>>(
      payload, n, static_cast<uint32_t>(block / kSignBlockStep),
      NumSignBlocks(n, block), out);
}

}  // namespace

SignKernels Sign() {
  SignKernels sign;
  sign.one_bit_encode = OneBitEncode;
  sign.one_bit_decode = OneBitDecode<false>;
  sign.one_bit_decode_add = OneBitDecode<true>;
  sign.count_pack = CountPack;
  sign.count_decode = CountDecode;
  sign.block_encode = BlockEncode;
  sign.block_decode = BlockDecode<false>;
  sign.block_decode_add = BlockDecode<true>;
  return sign;
}

}  // namespace telegrad::kernels::cuda
