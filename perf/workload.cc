#include "perf/workload.h"

#include <algorithm>
#include <cmath>

#include "base/random.h"

namespace telegrad::perf {
namespace {

constexpr size_t kPeriod = size_t{1} << 16;

}  // namespace

HugeArray NormalGradient(size_t n) {
  HugeArray array(4 * n);
  float* grad = array.as<float>();
  Random random(1);
  for (size_t i = 0; i < n; ++i) {
    grad[i] = i < kPeriod ? random.NextNormal() : grad[i - kPeriod];
  }
  return array;
}

float ThresholdFor(const float* grad, size_t n, double density) {
  const size_t sample = std::min(n, kPeriod);
  double low = 0;
  double high = 1;
  const auto density_at = [&](double t) {
    double sum = 0;
    for (size_t i = 0; i < sample; ++i) {
      sum += std::min(std::fabs(double{grad[i]}) / t, 1.0);
    }
    return sum / static_cast<double>(sample);
  };
  while (density_at(high) > density) high *= 2;
  for (int step = 0; step < 40; ++step) {
    const double middle = (low + high) / 2;
    (density_at(middle) > density ? low : high) = middle;
  }
  return static_cast<float>(high);
}

HugeArray SettledResidual(const float* grad, size_t n, float threshold,
                          uint64_t seed) {
  HugeArray array(4 * n);
  float* residual = array.as<float>();
  Random random(2, seed);
  for (size_t i = 0; i < n; ++i) {
    residual[i] = i < kPeriod
                      ? std::copysign(threshold * random.NextUniform(), grad[i])
                      : residual[i - kPeriod];
  }
  return array;
}

}  // namespace telegrad::perf
