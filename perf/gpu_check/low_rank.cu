#include <algorithm>
#include <cstring>

#include "kernels/cuda/cuda_kernels.h"
#include "kernels/low_rank.h"
#include "kernels/reference.h"
#include "perf/gpu_check/families.h"

namespace telegrad::gpu_check {
namespace {

using kernels::EncodeStats;
using kernels::LowRankKernels;
using kernels::LowRankShape;
using kernels::NonFinite;

std::vector<uint64_t> Counts(const EncodeStats& stats) {
  return {stats.num_nonzero, stats.num_nonfinite, stats.first_nonfinite};
}

void CheckFit(LowRankShape shape, size_t skew, NonFinite mode, bool is_left,
              Verdict& verdict) {
  const LowRankKernels gpu = kernels::cuda::LowRank();
  const LowRankKernels cpu = kernels::reference::LowRank();
  const auto grad = Floats(shape.n, shape.n + 1);
  auto residual = Floats(shape.n, shape.n + 2);
  std::vector<float> left(shape.rows() * shape.rank, 0.25f);
  std::vector<float> right(shape.cols * shape.rank, -0.125f);
  left[0] = right[0] = 0.3f;
  EncodeStats stats;
  DeviceArray<float> g(grad, skew);
  DeviceArray<float> r(residual, skew);
  DeviceArray<float> l(left, skew);
  DeviceArray<float> q(right, skew);
  DeviceArray<EncodeStats> s({stats});
  if (is_left) {
    gpu.fit_left(g.get(), r.get(), shape, q.get(), mode, l.get(), s.get(),
                 Stream{});
    cpu.fit_left(grad.data(), residual.data(), shape, right.data(), mode,
                 left.data(), &stats, Stream{});
  } else {
    gpu.fit_right(g.get(), r.get(), shape, l.get(), mode, q.get(), s.get(),
                  Stream{});
    cpu.fit_right(grad.data(), residual.data(), shape, left.data(), mode,
                  right.data(), &stats, Stream{});
  }
  verdict.Compare("low_rank residual", shape.n, shape.rank, r.values(),
                  residual);
  verdict.Compare("low_rank left", shape.n, shape.rank, l.values(), left);
  verdict.Compare("low_rank right", shape.n, shape.rank, q.values(), right);
  verdict.Compare("low_rank stats", shape.n, shape.rank, Counts(s.values()[0]),
                  Counts(stats));
}

void CheckExpand(LowRankShape shape, size_t skew, Verdict& verdict) {
  const LowRankKernels gpu = kernels::cuda::LowRank();
  const LowRankKernels cpu = kernels::reference::LowRank();
  const auto left = Floats(shape.rows() * shape.rank, shape.n + 3);
  const auto right = Floats(shape.cols * shape.rank, shape.n + 4);
  std::vector<float> out(shape.n);
  auto sum = Floats(shape.n, shape.n + 5);
  DeviceArray<float> l(left, skew);
  DeviceArray<float> q(right, skew);
  DeviceArray<float> o(out, skew);
  DeviceArray<float> s(sum, skew);
  gpu.expand(l.get(), q.get(), shape, o.get(), Stream{});
  gpu.expand_add(l.get(), q.get(), shape, s.get(), Stream{});
  cpu.expand(left.data(), right.data(), shape, out.data(), Stream{});
  cpu.expand_add(left.data(), right.data(), shape, sum.data(), Stream{});
  verdict.Compare("low_rank expand", shape.n, shape.rank, o.values(), out);
  verdict.Compare("low_rank expand_add", shape.n, shape.rank, s.values(), sum);
}

struct Payload {
  explicit Payload(LowRankShape shape, kernels::LowRankSide side)
      : words(Floats(kernels::LowRankBytes(shape) / 4, shape.n + shape.rank)) {
    for (float& word : words) word = kernels::LimitFactor(word);
    const kernels::LowRankHeader header = {static_cast<uint16_t>(shape.rank),
                                           side, 0};
    std::memcpy(words.data(), &header, sizeof(header));
  }
  uint8_t* bytes() { return reinterpret_cast<uint8_t*>(words.data()); }
  std::vector<float> words;
};

uint8_t* BytesOf(const DeviceArray<float>& words) {
  return reinterpret_cast<uint8_t*>(words.get());
}

// A whole step: what was learned of a sum is fitted, and added to it.
void CheckStep(LowRankShape shape, size_t skew, kernels::LowRankSide side,
               Verdict& verdict) {
  const LowRankKernels gpu = kernels::cuda::LowRank();
  const LowRankKernels cpu = kernels::reference::LowRank();
  Payload sum(shape, side);
  Payload next(shape, side);
  const auto grad = Floats(shape.n, shape.n + 1);
  auto residual = Floats(shape.n, shape.n + 2);
  std::vector<double> vectors(shape.rank * std::max(shape.cols, shape.rows()));
  EncodeStats stats;
  DeviceArray<float> s(sum.words, skew);
  DeviceArray<float> p(next.words, skew);
  DeviceArray<float> g(grad, skew);
  DeviceArray<float> r(residual, skew);
  DeviceArray<double> v(vectors);
  DeviceArray<EncodeStats> e({stats});
  gpu.learn(BytesOf(s), shape, v.get(), BytesOf(p), Stream{});
  gpu.fit(g.get(), r.get(), shape, NonFinite::kZero, BytesOf(p), e.get(),
          Stream{});
  gpu.add_fitted(BytesOf(s), shape, BytesOf(p), Stream{});
  cpu.learn(sum.bytes(), shape, vectors.data(), next.bytes(), Stream{});
  cpu.fit(grad.data(), residual.data(), shape, NonFinite::kZero, next.bytes(),
          &stats, Stream{});
  cpu.add_fitted(sum.bytes(), shape, next.bytes(), Stream{});
  verdict.Compare("low_rank step", shape.n, shape.rank, p.values(), next.words);
  verdict.Compare("low_rank vectors", shape.n, shape.rank, v.values(), vectors);
  verdict.CompareStats("low_rank fit stats", shape.n, shape.rank, e.values()[0],
                       stats);
  const kernels::DrawKey draw = {shape.n, shape.rank};
  gpu.random(draw, shape, v.get(), BytesOf(p), Stream{});
  cpu.random(draw, shape, vectors.data(), next.bytes(), Stream{});
  verdict.Compare("low_rank random", shape.n, shape.rank, p.values(),
                  next.words);
}

}  // namespace

void VerifyLowRank(Verdict& verdict) {
  for (const size_t n : {1, 15, 16, 17, 63, 64, 257, 4095, 4097, 100003}) {
    for (const uint32_t rank : {1u, 2u, 4u, 7u}) {
      LowRankShape shape;
      shape.n = n;
      shape.cols = n > 5000 ? 320 : 48;
      shape.rank = rank;
      for (const size_t skew : {0, 1}) {
        for (const bool is_left : {true, false}) {
          CheckFit(shape, skew, NonFinite::kZero, is_left, verdict);
          CheckFit(shape, skew, NonFinite::kPropagate, is_left, verdict);
        }
        CheckExpand(shape, skew, verdict);
        if (rank > shape.rows()) continue;
        CheckStep(shape, skew, kernels::LowRankSide::kRight, verdict);
        CheckStep(shape, skew, kernels::LowRankSide::kLeft, verdict);
      }
    }
  }
}

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
