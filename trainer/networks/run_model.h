#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "trainer/networks/model.h"

namespace telegrad {

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

struct ForwardPass {
  const Weights& weights;
  std::span<torch::Tensor> buffers;
  bool is_training = false;  // else statistics are read and nothing drops out
  // What drops out, in training: a pure function of both and of the node.
  uint64_t seed = 0;
  uint64_t draw = 0;
  // The type of the factors and results of products.
  torch::ScalarType type = torch::kFloat32;
  bool rounds = false;  // to `type`, and computes in float32
};

struct Logits {  // float32
  torch::Tensor main;
  torch::Tensor auxiliary;  // undefined where the model has none
};

// Takes each weight where it computes with it, not before: a weight may have to
// be waited for. Tensors that no later node reads are let go.
Logits Forward(const Model& model, const torch::Tensor& input,
               const ForwardPass& pass);

}  // namespace telegrad
