#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cuda/image.h"
#include "kernels/encode_stats.h"
#include "perf/gpu_check/gpu_check.h"

// How kernels are timed, and on what.
namespace telegrad::gpu_check {

// 1 GiB of floats: far more than any L2, so that nothing stays from run to run.
inline size_t num_elements = size_t{1} << 28;
inline int num_runs = 50;

struct Row {
  std::string name;
  double bytes_per_element;
  double median_us;
  double least_us;
  double peer_median_us = 0;  // 0: there is none
  size_t elements = num_elements;
};

template <typename Body>
Row Time(const std::string& name, double bytes_per_element, Body body) {
  cudaEvent_t begin;
  cudaEvent_t end;
  Require(cudaEventCreate(&begin), "cudaEventCreate");
  Require(cudaEventCreate(&end), "cudaEventCreate");
  std::vector<double> times;
  const int num_warm_ups = num_runs / 10;
  for (int run = 0; run < num_warm_ups + num_runs; ++run) {
    Require(cudaEventRecord(begin, nullptr), "cudaEventRecord");
    body();
    Require(cudaEventRecord(end, nullptr), "cudaEventRecord");
    Require(cudaEventSynchronize(end), name.c_str());
    Require(cudaGetLastError(), name.c_str());
    Require(kernels::cuda::LastKernelError(), name.c_str());
    float ms = 0;
    Require(cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime");
    if (run >= num_warm_ups) times.push_back(1000.0 * ms);
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
  float* x = Allocate<float>(num_elements);
  float* y = Allocate<float>(num_elements);
  float* z = Allocate<float>(num_elements);
  uint8_t* packed = Allocate<uint8_t>(num_elements);
  kernels::EncodeStats* stats = Allocate<kernels::EncodeStats>(1);
  double* power = Allocate<double>(1);
  std::vector<const uint8_t*> frames;
};

}  // namespace telegrad::gpu_check
