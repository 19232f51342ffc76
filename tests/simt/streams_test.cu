#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#include "tests/simt/observe.h"

// That the emulated streams find what is left out: each mistake is planted, and
// seen under some order; without it all orders give the same.
namespace telegrad::simt {
namespace {

constexpr size_t kWords = 1000;
constexpr size_t kBytes = 4 * kWords;
constexpr uint64_t kSeeds = 24;

__global__ void FillKernel(uint32_t value, uint32_t* to) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < kWords) to[i] = value;
}
__global__ void AddKernel(const uint32_t* from, uint32_t* to) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < kWords) to[i] += from[i];
}

class SimtStreams : public ::testing::Test {
 protected:
  SimtStreams() {
    cudaStreamCreateWithFlags(&first_, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&second_, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&event_, cudaEventDisableTiming);
    cudaMalloc(&memory_, kBytes);
    cudaHostAlloc(&host_, kBytes, cudaHostAllocPortable);
    pinned_ = static_cast<uint32_t*>(host_);
  }
  ~SimtStreams() override {
    SetOrder(1);
    FailNoMore();
    cudaStreamDestroy(first_);
    cudaStreamDestroy(second_);
    cudaEventDestroy(event_);
    cudaFree(memory_);
    cudaFreeHost(host_);
    cudaGetLastError();
  }

  void Fill(uint32_t value, cudaStream_t stream) {
    FillKernel<<<4, 256, 0, stream>>>(value, memory_);
  }
  void CopyBack(cudaStream_t stream) {
    cudaMemcpyAsync(pinned_, memory_, kBytes, cudaMemcpyDeviceToHost, stream);
  }
  bool PinnedIs(uint32_t value) const {
    for (size_t i = 0; i < kWords; ++i) {
      if (pinned_[i] != value) return false;
    }
    return true;
  }

  // Under how many of the orders `run` says that all is well.
  static uint64_t NumRight(const std::function<bool()>& run) {
    uint64_t num_right = 0;
    for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
      SetOrder(seed);
      num_right += run() ? 1 : 0;
      cudaDeviceSynchronize();
    }
    return num_right;
  }

  cudaStream_t first_ = nullptr;
  cudaStream_t second_ = nullptr;
  cudaEvent_t event_ = nullptr;
  uint32_t* memory_ = nullptr;
  void* host_ = nullptr;
  uint32_t* pinned_ = nullptr;
};

TEST_F(SimtStreams, AStreamKeepsItsOrder) {
  EXPECT_EQ(NumRight([&] {
              for (uint32_t i = 0; i < 20; ++i) Fill(i, first_);
              CopyBack(first_);
              cudaStreamSynchronize(first_);
              return PinnedIs(19);
            }),
            kSeeds);
}

TEST_F(SimtStreams, FindsAMissingWaitBetweenStreams) {
  const auto run = [&](bool waits) {
    Fill(1, first_);
    cudaDeviceSynchronize();
    Fill(2, first_);
    cudaEventRecord(event_, first_);
    if (waits) cudaStreamWaitEvent(second_, event_, 0);
    CopyBack(second_);
    cudaStreamSynchronize(second_);
    return PinnedIs(2);
  };
  EXPECT_EQ(NumRight([&] { return run(true); }), kSeeds);
  EXPECT_LT(NumRight([&] { return run(false); }), kSeeds);
}

TEST_F(SimtStreams, AnEventIsWhereItWasRecordedLast) {
  EXPECT_EQ(NumRight([&] {
              Fill(1, first_);
              cudaEventRecord(event_, first_);
              Fill(2, first_);
              cudaEventRecord(event_, first_);
              cudaStreamWaitEvent(second_, event_, 0);
              CopyBack(second_);
              cudaStreamSynchronize(second_);
              return PinnedIs(2);
            }),
            kSeeds);
}

TEST_F(SimtStreams, FindsAHostThatReadsTooEarly) {
  const auto run = [&](bool waits) {
    std::memset(pinned_, 0, kBytes);
    Fill(7, first_);
    CopyBack(first_);
    cudaEventRecord(event_, first_);
    while (waits && cudaEventQuery(event_) == cudaErrorNotReady) {
    }
    return PinnedIs(7);
  };
  EXPECT_EQ(NumRight([&] { return run(true); }), kSeeds);
  EXPECT_LT(NumRight([&] { return run(false); }), kSeeds);
}

TEST_F(SimtStreams, WhatIsNotWaitedForIsPoison) {
  SetOrder(3);  // as late as can be
  std::memset(pinned_, 0, kBytes);
  CopyBack(first_);
  EXPECT_TRUE(PinnedIs(0xA5A5A5A5u));
  uint32_t word = 0;  // nor has anybody written what was only allocated
  cudaMemcpy(&word, memory_, 4, cudaMemcpyDeviceToHost);
  EXPECT_EQ(word, 0xA5A5A5A5u);
}

TEST_F(SimtStreams, FindsASourceThatIsUsedAgainTooEarly) {
  const auto run = [&](bool waits) {
    for (size_t i = 0; i < kWords; ++i) pinned_[i] = 5;
    cudaMemcpyAsync(memory_, pinned_, kBytes, cudaMemcpyHostToDevice, first_);
    if (waits) cudaStreamSynchronize(first_);
    for (size_t i = 0; i < kWords; ++i) pinned_[i] = 6;
    CopyBack(first_);
    cudaStreamSynchronize(first_);
    return PinnedIs(5);
  };
  EXPECT_EQ(NumRight([&] { return run(true); }), kSeeds);
  EXPECT_LT(NumRight([&] { return run(false); }), kSeeds);
}

TEST_F(SimtStreams, TheSameSeedIsTheSameOrder) {
  const auto run = [&] {
    SetOrder(5);
    Fill(1, first_);
    for (uint32_t i = 0; i < 8; ++i) {
      Fill(i, i % 2 == 0 ? first_ : second_);
      AddKernel<<<4, 256, 0, i % 2 == 0 ? second_ : first_>>>(memory_, memory_);
    }
    cudaDeviceSynchronize();
    uint32_t word = 0;
    cudaMemcpy(&word, memory_, 4, cudaMemcpyDeviceToHost);
    return word;
  };
  EXPECT_EQ(run(), run());
}

TEST_F(SimtStreams, MemoryIsFreedInAStreamsOrder) {
  void* made = nullptr;
  cudaMallocAsync(&made, kBytes, first_);
  auto* const words = static_cast<uint32_t*>(made);
  FillKernel<<<4, 256, 0, first_>>>(3, words);
  cudaFreeAsync(words, first_);
  EXPECT_EQ(cudaStreamSynchronize(first_), cudaSuccess);
}

using SimtStreamsDeathTest = SimtStreams;

TEST_F(SimtStreamsDeathTest, FindsUseAfterFree) {
  EXPECT_DEATH(
      {
        void* made = nullptr;
        cudaMallocAsync(&made, kBytes, first_);
        cudaFreeAsync(made, first_);
        FillKernel<<<4, 256, 0, first_>>>(3, static_cast<uint32_t*>(made));
        cudaStreamSynchronize(first_);
      },
      "");
}

TEST_F(SimtStreamsDeathTest, ADeviceCannotReachTheOthersMemory) {
  EXPECT_DEATH(
      {
        cudaSetDevice(1);
        Fill(1, nullptr);
        cudaDeviceSynchronize();
      },
      "");
}

TEST_F(SimtStreams, FindsAWrongCurrentDevice) {
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  Fill(1, first_);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventRecord(event_, nullptr), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaSetDevice(2), cudaErrorInvalidDevice);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  cudaGetLastError();
  Fill(1, first_);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(SimtStreams, CountsWaitsLaunchesAllocationsAndCopies) {
  const Counters before = Counted();
  Fill(1, first_);
  CopyBack(first_);
  cudaMemcpyAsync(memory_, pinned_, 400, cudaMemcpyHostToDevice, first_);
  cudaEventRecord(event_, first_);
  while (cudaEventQuery(event_) == cudaErrorNotReady) {
  }
  void* made = nullptr;
  cudaMallocAsync(&made, 8, first_);
  cudaFreeAsync(made, first_);
  Counters used = Counted() - before;
  EXPECT_EQ(used.waits, 0u);
  EXPECT_EQ(used.launches, 1u);
  EXPECT_EQ(used.allocations, 0u);
  EXPECT_EQ(used.pool_allocations, 1u);
  EXPECT_EQ(used.bytes_to_host, kBytes);
  EXPECT_EQ(used.bytes_to_device, 400u);
  cudaStreamSynchronize(first_);
  cudaMalloc(&made, 8);
  cudaFree(made);
  std::vector<char> pageable(8);
  cudaMemcpyAsync(pageable.data(), memory_, 8, cudaMemcpyDeviceToHost, first_);
  used = Counted() - before;
  EXPECT_EQ(used.waits, 3u);
  EXPECT_EQ(used.allocations, 1u);
}

TEST_F(SimtStreams, LaunchesFailOnDemand) {
  FailLaunch(1, cudaErrorLaunchFailure, false);
  Fill(1, first_);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  Fill(2, first_);
  EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure);
  CopyBack(first_);
  cudaStreamSynchronize(first_);
  EXPECT_TRUE(PinnedIs(1));
  FailLaunch(0, cudaErrorIllegalAddress, true);
  Fill(2, first_);
  EXPECT_EQ(cudaGetLastError(), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaStreamSynchronize(first_), cudaErrorIllegalAddress);
  FailNoMore();
}

}  // namespace
}  // namespace telegrad::simt
