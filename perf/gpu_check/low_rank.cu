#include "kernels/cuda/cuda_kernels.h"
#include "kernels/low_rank.h"
#include "perf/gpu_check/families.h"

namespace telegrad::gpu_check {

using kernels::LowRankKernels;
using kernels::LowRankShape;
using kernels::NonFinite;

// Rank 2. The factors lie in `packed`. fit_left and fit_right read and write
// the residual twice and read it once more.
void MeasureLowRank(Arrays& arrays, std::vector<Row>& rows) {
  const LowRankKernels gpu = kernels::cuda::LowRank();
  LowRankShape shape;
  shape.n = num_elements;
  shape.cols = 16384;
  shape.rank = 2;
  auto* left = reinterpret_cast<float*>(arrays.packed);
  float* right = left + shape.rows() * shape.rank;
  rows.push_back(Time("low_rank_fit_left", 24, [&] {
    gpu.fit_left(arrays.x, arrays.y, shape, right, NonFinite::kZero, left,
                 arrays.stats, Stream{});
  }));
  rows.push_back(Time("low_rank_fit_right", 24, [&] {
    gpu.fit_right(arrays.x, arrays.y, shape, left, NonFinite::kZero, right,
                  arrays.stats, Stream{});
  }));
  auto* const payload = arrays.packed;
  auto* const vectors = reinterpret_cast<double*>(arrays.z);
  const double factor = 4.0 * shape.rank * shape.cols / num_elements;
  rows.push_back(Time("low_rank_random", factor, [&] {
    gpu.random({1, 2}, shape, vectors, payload, Stream{});
  }));
  rows.push_back(Time("low_rank_fit", 24, [&] {
    gpu.fit(arrays.x, arrays.y, shape, NonFinite::kZero, payload, arrays.stats,
            Stream{});
  }));
  rows.push_back(Time("low_rank_learn", 2 * factor, [&] {
    gpu.learn(payload, shape, vectors, payload + kernels::LowRankBytes(shape),
              Stream{});
  }));
  rows.push_back(Time("low_rank_expand", 4, [&] {
    gpu.expand(left, right, shape, arrays.z, Stream{});
  }));
}

}  // namespace telegrad::gpu_check
