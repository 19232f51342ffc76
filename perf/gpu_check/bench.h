#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/encode_stats.h"
#include "perf/gpu_check/gpu_check.h"

// How kernels are timed, and on what.
namespace telegrad::gpu_check {

// 1 GiB of floats: far more than any L2, so that nothing stays from run to run.
inline constexpr size_t kElements = size_t{1} << 28;
inline constexpr int kRuns = 50;
inline constexpr int kWarmUps = 5;

struct Row {
  std::string name;
  double bytes_per_element;
  double median_us;
  double least_us;
};

template <typename Body>
Row Time(const std::string& name, double bytes_per_element, Body body) {
  cudaEvent_t begin;
  cudaEvent_t end;
  Require(cudaEventCreate(&begin), "cudaEventCreate");
  Require(cudaEventCreate(&end), "cudaEventCreate");
  std::vector<double> times;
  for (int run = 0; run < kWarmUps + kRuns; ++run) {
    Require(cudaEventRecord(begin, nullptr), "cudaEventRecord");
    body();
    Require(cudaEventRecord(end, nullptr), "cudaEventRecord");
    Require(cudaEventSynchronize(end), name.c_str());
    Require(cudaGetLastError(), name.c_str());
    float ms = 0;
    Require(cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime");
    if (run >= kWarmUps) times.push_back(1000.0 * ms);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  std::sort(times.begin(), times.end());
  return {name, bytes_per_element, times[times.size() / 2], times[0]};
}

template <typename T>
T* Allocate(size_t count) {
  T* memory = nullptr;
  Require(cudaMalloc(&memory, count * sizeof(T)), "cudaMalloc");
  Require(cudaMemset(memory, 0, count * sizeof(T)), "cudaMemset");
  return memory;
}

struct Arrays {
  float* x = Allocate<float>(kElements);
  float* y = Allocate<float>(kElements);
  float* z = Allocate<float>(kElements);
  uint8_t* packed = Allocate<uint8_t>(kElements);
  kernels::EncodeStats* stats = Allocate<kernels::EncodeStats>(1);
  double* power = Allocate<double>(1);
  std::vector<const uint8_t*> frames;
};

}  // namespace telegrad::gpu_check
