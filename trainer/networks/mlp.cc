#include "trainer/networks/model.h"

namespace telegrad {

// As in MXNet's example/image-classification/symbols/mlp.py.
absl::StatusOr<Model> MakeMlp(const NetworkSpec& spec) {
  constexpr int64_t kHidden1 = 128;
  constexpr int64_t kHidden2 = 64;
  Model model;
  const int64_t in = NumInputs(spec);
  AddDense(model, "fc1", in, kHidden1, HeBound(in));
  AddDense(model, "fc2", kHidden1, kHidden2, HeBound(kHidden1));
  AddDense(model, "fc3", kHidden2, spec.num_classes,
           XavierBound(kHidden2, spec.num_classes));
  model.forward = [](const torch::Tensor& images, const Weights& weights) {
    torch::Tensor x = images.flatten(1);
    x = torch::relu(torch::linear(x, weights[0], weights[1]));
    x = torch::relu(torch::linear(x, weights[2], weights[3]));
    return torch::linear(x, weights[4], weights[5]);
  };
  return model;
}

}  // namespace telegrad
