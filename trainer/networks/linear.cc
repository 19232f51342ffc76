#include "trainer/networks/model.h"

namespace telegrad {

absl::StatusOr<Model> MakeLinear(const NetworkSpec& spec) {
  Model model;
  const int64_t in = NumInputs(spec);
  AddDense(model, "fc", in, spec.num_classes,
           XavierBound(in, spec.num_classes));
  model.forward = [](const torch::Tensor& images, const Weights& weights) {
    return torch::linear(images.flatten(1), weights[0], weights[1]);
  };
  return model;
}

}  // namespace telegrad
