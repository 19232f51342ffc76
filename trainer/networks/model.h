#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/network.h"

namespace telegrad {

// A tensor to be learned. Its initial values are uniform in [-bound, bound);
// bound 0 gives zeros.
struct ModelParameter {
  std::string name;
  std::vector<int64_t> shape;
  float bound = 0.0f;
};

// The parameters of a model in forward, by index.
class Weights {
 public:
  using Needed = std::function<void(size_t index)>;
  explicit Weights(std::span<const torch::Tensor> tensors,
                   Needed needed = nullptr)
      : tensors_(tensors), needed_(std::move(needed)) {}

  // Ready to be read: what still changes it has been waited for.
  const torch::Tensor& operator[](size_t index) const {
    if (needed_) needed_(index);
    return tensors_[index];
  }

 private:
  const std::span<const torch::Tensor> tensors_;
  const Needed needed_;
};

// What a network is, without its state: a new one is a function that returns
// this and a line in trainer/registry.cc.
struct Model {
  std::vector<ModelParameter> parameters;  // forward order
  // images [n, c, r, c] f32 -> logits [n, num_classes]. Takes each weight where
  // it computes with it, not before: a weight may have to be waited for.
  std::function<torch::Tensor(const torch::Tensor& images,
                              const Weights& weights)>
      forward;
};

// Bound with which a layer keeps the variance of what passes through it.
// Xavier: sqrt(6 / (fan_in + fan_out)), for linear and tanh layers; Glorot and
// Bengio, AISTATS 2010, equation 16. He: sqrt(6 / fan_in), for ReLU; He et al.,
// ICCV 2015, equation 10.
float XavierBound(int64_t fan_in, int64_t fan_out);
float HeBound(int64_t fan_in);

// `name`.weight [out, in] and `name`.bias [out], the latter zero.
void AddDense(Model& model, const std::string& name, int64_t in, int64_t out,
              float bound);

int64_t NumInputs(const NetworkSpec& spec);

// InvalidArgument when the input is too small for the model.
absl::StatusOr<Model> MakeLinear(const NetworkSpec& spec);
absl::StatusOr<Model> MakeMlp(const NetworkSpec& spec);
absl::StatusOr<Model> MakeLeNet(const NetworkSpec& spec);

}  // namespace telegrad
