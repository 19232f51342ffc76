#include "trainer/gradients.h"

#include <cmath>

#include "kernels/dispatch.h"

namespace telegrad {
namespace {

void Multiply(const Parameter& parameter, float factor) {
  kernels::CpuKernels().scale_f32(factor, parameter.num_elements,
                                  parameter.grad, {});
}

}  // namespace

void WeighGradient(const Replica& replica, size_t index, int batch_size) {
  if (replica.batch_size == batch_size) return;
  Multiply(
      replica.network->parameters()[index],
      static_cast<float>(replica.batch_size) / static_cast<float>(batch_size));
}

void ClipGradients(std::span<const Replica> replicas, float most) {
  for (const Replica& replica : replicas) {
    double squares = 0;
    for (const Parameter& each : replica.network->parameters()) {
      for (size_t i = 0; i < each.num_elements; ++i) {
        squares += static_cast<double>(each.grad[i]) *
                   static_cast<double>(each.grad[i]);
      }
    }
    const double limit = most;
    if (!std::isfinite(squares) || squares <= limit * limit) continue;
    const auto scale = static_cast<float>(limit / std::sqrt(squares));
    for (const Parameter& each : replica.network->parameters()) {
      Multiply(each, scale);
    }
  }
}

}  // namespace telegrad
