#include "trainer/networks/model.h"

#include <cmath>

namespace telegrad {

float XavierBound(int64_t fan_in, int64_t fan_out) {
  return std::sqrt(6.0f / static_cast<float>(fan_in + fan_out));
}

float HeBound(int64_t fan_in) {
  return std::sqrt(6.0f / static_cast<float>(fan_in));
}

void AddDense(Model& model, const std::string& name, int64_t in, int64_t out,
              float bound) {
  model.parameters.push_back({name + ".weight", {out, in}, bound});
  model.parameters.push_back({name + ".bias", {out}, 0.0f});
}

int64_t NumInputs(const NetworkSpec& spec) {
  return int64_t{spec.channels} * spec.rows * spec.cols;
}

}  // namespace telegrad
