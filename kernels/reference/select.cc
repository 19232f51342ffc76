#include "kernels/select.h"

#include <functional>
#include <vector>

#include "kernels/reference.h"

namespace telegrad::kernels::reference {
namespace {

float ValueAt(const SampledValues& values, size_t i) {
  if (values.momentum == nullptr) return values.residual[i] + values.grad[i];
  const float decayed = values.correction.rate * values.momentum[i];
  return values.residual[i] +
         (decayed + ScaleAt(values.correction.scale) * values.grad[i]);
}

void SampleThreshold(SampledValues values, size_t n, size_t wanted,
                     bool generous, float* threshold, void*, Stream) {
  const size_t step = SampleStep(n);
  std::vector<uint32_t> bits(SampleSize(n));
  for (size_t j = 0; j < bits.size(); ++j) {
    const size_t i = SampleAt(j / kSampleRun, step) + j % kSampleRun;
    bits[j] = SendableBits(ValueAt(values, i));
  }
  std::sort(bits.begin(), bits.end(), std::greater<uint32_t>());
  const uint32_t least = bits.back();
  const uint32_t kth = bits[SampleRank(bits.size(), n, wanted, generous) - 1];
  uint32_t shift = 0;
  while ((bits.front() - least) >> shift >= 1u << kSelectBinBits) ++shift;
  const uint32_t found =
      std::max(least + ((kth - least) >> shift << shift), 1u);
  std::memcpy(threshold, &found, sizeof(found));
}

// The k largest of those in [0, n) whose magnitude is not 0, in order of index.
std::vector<size_t> Largest(const float* values, size_t n, size_t k) {
  std::vector<size_t> order;
  for (size_t i = 0; i < n; ++i) {
    if (SendableBits(values[i]) != 0) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(), [values](size_t a, size_t b) {
    return SendableBits(values[a]) > SendableBits(values[b]);
  });
  if (order.size() > k) order.resize(k);
  std::sort(order.begin(), order.end());
  return order;
}

void TakeLargest(HowMany how_many, Candidates candidates, Taken taken, void*,
                 Stream) {
  const size_t listed = *candidates.count;
  const bool is_list = listed >= how_many.fewest;
  const size_t k = is_list && listed <= how_many.most ? listed : how_many.k;
  const float* const values = is_list ? candidates.values : candidates.residual;
  const std::vector<size_t> order =
      Largest(values, is_list ? listed : candidates.n, k);
  for (size_t j = 0; j < order.size(); ++j) {
    const size_t i = order[j];
    taken.indices[j] =
        is_list ? candidates.indices[i] : static_cast<uint32_t>(i);
    taken.values[j] = values[i];
  }
  for (size_t j = 0; j < order.size(); ++j) {
    candidates.residual[taken.indices[j]] = 0;
    if (candidates.momentum == nullptr) continue;
    candidates.momentum[taken.indices[j]] = 0;
  }
  *taken.count = order.size();
  taken.stats->num_nonzero = order.size();
}

double SumOfLanes(double* lanes) {
  for (size_t width = kClipLanes / 2; width > 0; width /= 2) {
    for (size_t l = 0; l < width; ++l) lanes[l] += lanes[l + width];
  }
  return lanes[0];
}

double SquareOfTile(const float* x, size_t size) {
  double lanes[kClipLanes] = {};
  for (size_t from = 0; from < size; from += kClipLanes) {
    const size_t num = std::min(kClipLanes, size - from);
    for (size_t l = 0; l < num; ++l) {
      const double value = std::isfinite(x[from + l]) ? x[from + l] : 0.0;
      lanes[l] += value * value;
    }
  }
  return SumOfLanes(lanes);
}

void ClipScale(const float* x, size_t n, double clip, float* scale, void*,
               Stream) {
  double lanes[kClipLanes] = {};
  for (size_t from = 0; from < n; from += kClipTile) {
    lanes[from / kClipTile % kClipLanes] +=
        SquareOfTile(x + from, std::min(kClipTile, n - from));
  }
  const double norm = std::sqrt(SumOfLanes(lanes));
  *scale = norm <= clip ? 1.0f : static_cast<float>(clip / norm);
}

}  // namespace

SelectKernels Select() { return {SampleThreshold, TakeLargest, ClipScale}; }

}  // namespace telegrad::kernels::reference
