#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

// That the emulator does what CUDA says, and finds what it is there to find.
namespace telegrad {
namespace {

constexpr unsigned kAll = 0xFFFFFFFFu;

// Memory of the device with a copy's way back.
template <typename T>
class OnDevice {
 public:
  explicit OnDevice(size_t size) : size_(size) {
    cudaMalloc(&memory_, size * sizeof(T));
    cudaMemset(memory_, 0, size * sizeof(T));
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() { cudaFree(memory_); }
  T* get() const { return memory_; }
  std::vector<T> values() const {
    std::vector<T> copy(size_);
    cudaMemcpy(copy.data(), memory_, size_ * sizeof(T), cudaMemcpyDeviceToHost);
    return copy;
  }

 private:
  size_t size_;
  T* memory_ = nullptr;
};

__global__ void IndexKernel(unsigned* out) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = i + 1000 * gridDim.x;
}

TEST(Simt, RunsEachThreadOnce) {
  const OnDevice<unsigned> out(5 * 96);
  IndexKernel<<<5, 96>>>(out.get());
  for (unsigned i = 0; i < 5 * 96; ++i) EXPECT_EQ(out.values()[i], i + 5000);
}

enum What { kSync, kUp, kDown, kXor, kFrom, kHalves, kBallot, kAny };

template <What kWhat>
__global__ void WarpKernel(unsigned* out) {
  const unsigned lane = threadIdx.x % 32;
  const unsigned value = 100 + threadIdx.x;
  unsigned got = 0;
  if (kWhat == kSync) __syncwarp();
  if (kWhat == kUp) got = __shfl_up_sync(kAll, value, 3);
  if (kWhat == kDown) got = __shfl_down_sync(kAll, value, 3);
  if (kWhat == kXor) got = __shfl_xor_sync(kAll, value, 5);
  if (kWhat == kFrom) got = __shfl_sync(kAll, value, 7);
  if (kWhat == kHalves) got = __shfl_down_sync(kAll, value, 8, 16);
  if (kWhat == kBallot) got = __ballot_sync(kAll, lane % 3 == 0);
  if (kWhat == kAny) got = __any_sync(kAll, threadIdx.x == 40) != 0;
  out[threadIdx.x] = got;
}

template <What kWhat>
std::vector<unsigned> OfWarps() {
  const OnDevice<unsigned> out(64);
  WarpKernel<kWhat><<<1, 64>>>(out.get());
  return out.values();
}

// Values by the CUDA C++ Programming Guide, "Warp Shuffle Functions".
TEST(Simt, WarpsExchangeValues) {
  for (unsigned t = 0; t < 64; ++t) {
    const unsigned lane = t % 32;
    EXPECT_EQ(OfWarps<kUp>()[t], lane < 3 ? 100 + t : 97 + t);
    EXPECT_EQ(OfWarps<kDown>()[t], lane >= 29 ? 100 + t : 103 + t);
    EXPECT_EQ(OfWarps<kXor>()[t], 100 + (t ^ 5));
    EXPECT_EQ(OfWarps<kFrom>()[t], 107 + t / 32 * 32);
    EXPECT_EQ(OfWarps<kHalves>()[t], lane % 16 >= 8 ? 100 + t : 108 + t);
    EXPECT_EQ(OfWarps<kBallot>()[t], 0x49249249u);
    EXPECT_EQ(OfWarps<kAny>()[t], t / 32);
  }
}

template <bool kWaits>
__global__ void ReverseKernel(unsigned* out) {
  __shared__ unsigned values[128];
  values[threadIdx.x] = threadIdx.x;
  if (kWaits) __syncthreads();
  out[threadIdx.x] = values[127 - threadIdx.x];
}

std::vector<unsigned> Reversed() {
  std::vector<unsigned> values(128);
  for (unsigned i = 0; i < 128; ++i) values[i] = 127 - i;
  return values;
}

TEST(Simt, BlocksShareMemoryAndWait) {
  const OnDevice<unsigned> out(128);
  for (int run = 0; run < 8; ++run) {
    ReverseKernel<true><<<1, 128>>>(out.get());
    EXPECT_EQ(out.values(), Reversed());
  }
}

TEST(Simt, WithoutWaitingSharedMemoryIsGarbage) {
  const OnDevice<unsigned> out(128);
  ReverseKernel<false><<<1, 128>>>(out.get());
  EXPECT_NE(out.values(), Reversed());
}

// Each block waits for the one that took its number before it: some are under
// way at the same time, and those that wait do not keep others from it.
__global__ void ChainKernel(unsigned* next, unsigned* chain, unsigned* order) {
  __shared__ unsigned number;
  if (threadIdx.x == 0) number = atomicAdd(next, 1u);
  __syncthreads();
  if (threadIdx.x == 0) {
    const volatile unsigned* const done = chain;
    while (*done != number) {
    }
    order[blockIdx.x] = number;
    *static_cast<volatile unsigned*>(chain) = number + 1;
  }
}

TEST(Simt, BlocksThatWaitForOthersGetOn) {
  const OnDevice<unsigned> next(1);
  const OnDevice<unsigned> chain(1);
  const OnDevice<unsigned> order(16);
  ChainKernel<<<16, 64>>>(next.get(), chain.get(), order.get());
  EXPECT_EQ(chain.values()[0], 16u);
  unsigned taken = 0;
  for (const unsigned number : order.values()) taken |= 1u << number;
  EXPECT_EQ(taken, 0xFFFFu);
}

__global__ void AtomicsKernel(unsigned long long* at) {
  const unsigned long long i = blockIdx.x * blockDim.x + threadIdx.x;
  atomicAdd(at, i);
  atomicMax(at + 1, i);
  atomicMin(at + 2, ~i);
}

TEST(Simt, Atomics) {
  const OnDevice<unsigned long long> at(3);
  cudaMemset(at.get() + 2, 0xFF, 8);
  AtomicsKernel<<<8, 64>>>(at.get());
  EXPECT_EQ(at.values()[0], 512u * 511 / 2);
  EXPECT_EQ(at.values()[1], 511u);
  EXPECT_EQ(at.values()[2], ~511ull);
}

TEST(Simt, BitsOfWords) {
  EXPECT_EQ(__brev(0x80000001u), 0x80000001u);
  EXPECT_EQ(__brev(0x00000006u), 0x60000000u);
  EXPECT_EQ(__byte_perm(0x33221100u, 0x77665544u, 0x0123), 0x00112233u);
  EXPECT_EQ(__byte_perm(0x33221100u, 0x77665544u, 0x7654), 0x77665544u);
  EXPECT_EQ(__ffs(0), 0);
  EXPECT_EQ(__ffs(0x10), 5);
}

// Of IEEE 754: ties to even, subnormals, the largest and what is beyond.
TEST(Simt, Halves) {
  EXPECT_EQ(__half_as_ushort(__float2half_rn(1.0f)), 0x3C00);
  EXPECT_EQ(__half_as_ushort(__float2half_rn(-2.5f)), 0xC100);
  EXPECT_EQ(__half_as_ushort(__float2half_rn(-0.0f)), 0x8000);
  EXPECT_EQ(__half_as_ushort(__float2half_rn(2049.0f)), 0x6800);
  EXPECT_EQ(__half_as_ushort(__float2half_rn(2051.0f)), 0x6802);
  EXPECT_EQ(__half_as_ushort(__float2half_rn(65504.0f)), 0x7BFF);
  EXPECT_EQ(__half_as_ushort(__float2half_rn(65519.9f)), 0x7BFF);
  EXPECT_EQ(__half_as_ushort(__float2half_rn(65520.0f)), 0x7C00);
  EXPECT_EQ(__half_as_ushort(__float2half_rn(0x1p-24f)), 0x0001);
  EXPECT_EQ(__half_as_ushort(__float2half_rn(0x1p-25f)), 0x0000);
  EXPECT_EQ(__half_as_ushort(__float2half_rn(0x1.8p-24f)), 0x0002);
  EXPECT_EQ(__half_as_ushort(__float2half_rn(0x1.ffap-15f)), 0x03FF);
  EXPECT_EQ(__half_as_ushort(__float2half_rn(0x1.ffcp-15f)), 0x0400);
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    if ((bits & 0x7FFF) > 0x7C00) continue;
    const auto code = static_cast<unsigned short>(bits);
    const float value = __half2float(__ushort_as_half(code));
    EXPECT_EQ(__half_as_ushort(__float2half_rn(value)), code);
  }
}

TEST(Simt, ImpossibleLaunchesAreErrors) {
  const OnDevice<unsigned> out(64);
  IndexKernel<<<0, 64>>>(out.get());
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidConfiguration);
  IndexKernel<<<1, 1025>>>(out.get());
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidConfiguration);
  IndexKernel<<<1, 64>>>(out.get());
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

enum Fault { kLeaves, kLaneLeaves, kMixes, kHalfWarp, kSharesTooMuch, kNone };

template <Fault kFault>
__global__ void FaultyKernel(unsigned* out) {
  const unsigned t = threadIdx.x;
  if (kFault == kLeaves) {
    if (t == 70) return;
    __syncthreads();
  }
  if (kFault == kLaneLeaves) {
    if (t == 70) return;
    out[t] = __shfl_xor_sync(kAll, t, 1);
  }
  if (kFault == kMixes) {
    if (t % 2 == 0) {
      __syncwarp();
    } else {
      out[t] = __shfl_xor_sync(kAll, t, 1);
    }
  }
  if (kFault == kHalfWarp && t % 32 < 16) __syncwarp(0xFFFFu);
  if (kFault == kSharesTooMuch) {
    __shared__ unsigned large[12289];
    large[t] = t;
    out[t] = large[t];
  }
  out[t] = t;
}

template <Fault kFault>
void RunFaulty() {
  const OnDevice<unsigned> out(96);
  FaultyKernel<kFault><<<1, 96>>>(out.get());
}

TEST(SimtDeathTest, FaultsOfKernelsEndTheProcess) {
  RunFaulty<kNone>();
  EXPECT_DEATH(RunFaulty<kLeaves>(), "waits at __syncthreads .* 1 of 96 have");
  EXPECT_DEATH(RunFaulty<kLaneLeaves>(), "waits at __shfl_xor_sync for");
  EXPECT_DEATH(RunFaulty<kMixes>(), "while lanes of its warp are at");
  EXPECT_DEATH(RunFaulty<kHalfWarp>(), "__syncwarp of mask 0000ffff");
  EXPECT_DEATH(RunFaulty<kSharesTooMuch>(), "49156 bytes of shared memory");
}

TEST(SimtDeathTest, TheHostCannotTouchTheDevicesMemory) {
  const OnDevice<unsigned> out(64);
  EXPECT_DEATH(out.get()[0] = 1, "");
  unsigned word = 0;
  EXPECT_EQ(cudaMemcpy(out.get(), &word, 4, cudaMemcpyDeviceToHost),
            cudaErrorInvalidValue);
}

// Found at the next page in every build, at once with AddressSanitizer.
TEST(SimtDeathTest, KernelsCannotWritePastTheEnd) {
#if defined(__SANITIZE_ADDRESS__)
  constexpr unsigned kTooMany = 1;
#else
  constexpr unsigned kTooMany = 1024;
#endif
  const OnDevice<unsigned> out(64);
  IndexKernel<<<1, 64>>>(out.get());
  // Launches run late: no sooner than somebody waits.
  const auto run = [&out] {
    IndexKernel<<<1 + kTooMany, 64>>>(out.get());
    cudaDeviceSynchronize();
  };
  EXPECT_DEATH(run(), "");
}

}  // namespace
}  // namespace telegrad
