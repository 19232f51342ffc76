#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cuda/cuda_kernels.h"
#include "perf/gpu_check/families.h"

// Encoders of 16-bit gradients.
namespace telegrad::gpu_check {
namespace {

using kernels::CastFormatKernels;
using kernels::CastKernels;
using kernels::NonFinite;
using kernels::SparseKernels;
using kernels::ThresholdEncodeHalfFn;
using kernels::TwoBitEncodeHalfFn;

struct Format {
  const char* name;
  CastFormatKernels CastKernels::*cast;
  TwoBitEncodeHalfFn* two_bit;
  ThresholdEncodeHalfFn* SparseKernels::*threshold;
};
const Format kFormats[] = {
    {"fp16", &CastKernels::fp16, kernels::cuda::TwoBitEncodeFp16,
     &SparseKernels::threshold_encode_fp16},
    {"bf16", &CastKernels::bf16, kernels::cuda::TwoBitEncodeBf16,
     &SparseKernels::threshold_encode_bf16}};

}  // namespace

// x is uniform in [-1/4, 1/4]; z holds it in each format.
void MeasureHalf(Arrays& a, std::vector<Row>& rows) {
  const size_t n = num_elements;
  auto* const halves = reinterpret_cast<uint16_t*>(a.z);
  auto* const list = Allocate<uint32_t>(n + kernels::kSurvivorSlack);
  auto* const count = Allocate<uint64_t>(1);
  auto* const scratch = Allocate<uint8_t>(kernels::SparseScratchBytes(n));
  const SparseKernels sparse = kernels::cuda::Sparse();
  for (const Format& format : kFormats) {
    const std::string name = format.name;
    (kernels::cuda::Cast().*format.cast)
        .encode(a.x, nullptr, n, NonFinite::kZero,
                reinterpret_cast<uint8_t*>(a.z), a.stats, Stream{});
    Require(cudaMemset(a.y, 0, 4 * n), "cudaMemset");
    rows.push_back(Time("two_bit_encode " + name, 10.25, [&] {
      format.two_bit(halves, a.y, n, 0.25f, NonFinite::kZero, a.packed, a.stats,
                     Stream{});
    }));
    Require(cudaMemset(a.y, 0, 4 * n), "cudaMemset");
    rows.push_back(Time("threshold_encode " + name, 10, [&] {
      (sparse.*format.threshold)(halves, a.y, nullptr, n, 6.25f,
                                 NonFinite::kZero, list, count, a.stats,
                                 scratch, Stream{});
    }));
  }
  cudaFree(list);
  cudaFree(count);
  cudaFree(scratch);
}

}  // namespace telegrad::gpu_check
