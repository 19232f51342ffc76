#include "trainer/networks/torch_network.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <cstring>
#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/random.h"

namespace telegrad {
namespace {

using torch::autograd::variable_list;

// Keeps the initial weights apart from what else is drawn from the same seed.
constexpr uint64_t kWeightStream = uint64_t{0x77656967} << 32;  // "weig"

// Tells the network that the gradient of one parameter is complete: it runs
// after the node that has added the last contribution to it.
class GradientHook : public torch::autograd::FunctionPostHook {
 public:
  GradientHook(const Network::Hooks* const* hooks, size_t index)
      : hooks_(hooks), index_(index) {}
  variable_list operator()(const variable_list& outputs,
                           const variable_list&) override {
    const Network::Hooks* const hooks = *hooks_;
    if (hooks != nullptr && hooks->gradient_ready) {
      hooks->gradient_ready(index_);
    }
    return outputs;
  }

 private:
  const Network::Hooks* const* hooks_;
  size_t index_;
};

size_t PaddedElements(size_t num_elements) {
  constexpr size_t kElements = Buffer::kAlignment / sizeof(float);
  return (num_elements + kElements - 1) / kElements * kElements;
}

size_t NumElements(const std::vector<int64_t>& shape) {
  size_t count = 1;
  for (int64_t extent : shape) count *= static_cast<size_t>(extent);
  return count;
}

void FillUniform(const Parameter& parameter, float bound, uint64_t seed,
                 size_t index) {
  Random random(seed, kWeightStream | index);
  for (size_t i = 0; i < parameter.num_elements; ++i) {
    parameter.weight[i] =
        bound == 0.0f ? 0.0f : random.NextUniform(-bound, bound);
  }
}

class TorchNetwork : public Network {
 public:
  TorchNetwork(const NetworkSpec& spec, Model model)
      : spec_(spec), model_(std::move(model)) {
    size_t total = 0;
    for (const ModelParameter& parameter : model_.parameters) {
      total += PaddedElements(NumElements(parameter.shape));
    }
    weights_ = Buffer(total * sizeof(float));
    grads_ = Buffer(total * sizeof(float));
    size_t offset = 0;
    for (size_t i = 0; i < model_.parameters.size(); ++i) {
      AddParameter(i, offset);
      offset += PaddedElements(parameters_[i].num_elements);
    }
  }

  const std::vector<Parameter>& parameters() const override {
    return parameters_;
  }

  BatchResult ForwardBackward(const float* images, const int64_t* labels,
                              int64_t n, const Hooks& hooks) override {
    try {
      const torch::Tensor target = Labels(labels, n);
      const Weights weights(leaves_, hooks.weight_needed);
      const torch::Tensor logits = model_.forward(Images(images, n), weights);
      std::memset(grads_.data(), 0, grads_.size());
      const torch::Tensor loss = torch::cross_entropy_loss(logits, target);
      hooks_ = &hooks;
      loss.backward();
      hooks_ = nullptr;
      torch::NoGradGuard no_grad;
      return Count(logits, target, loss.item<double>() * double(n));
    } catch (const std::exception& error) {
      CheckFailed(__FILE__, __LINE__, error.what());
    }
  }

  BatchResult Evaluate(const float* images, const int64_t* labels,
                       int64_t n) override {
    try {
      torch::NoGradGuard no_grad;
      const torch::Tensor target = Labels(labels, n);
      const Weights weights(leaves_);
      const torch::Tensor logits = model_.forward(Images(images, n), weights);
      const torch::Tensor loss = torch::cross_entropy_loss(
          logits, target, /*weight=*/{}, at::Reduction::Sum);
      return Count(logits, target, loss.item<double>());
    } catch (const std::exception& error) {
      CheckFailed(__FILE__, __LINE__, error.what());
    }
  }

 private:
  void AddParameter(size_t index, size_t offset) {
    const ModelParameter& described = model_.parameters[index];
    Parameter parameter{.name = described.name,
                        .shape = described.shape,
                        .num_elements = NumElements(described.shape),
                        .weight = weights_.as<float>() + offset,
                        .grad = grads_.as<float>() + offset};
    FillUniform(parameter, described.bound, spec_.seed, index);
    torch::Tensor leaf = torch::from_blob(parameter.weight, parameter.shape);
    leaf.set_requires_grad(true);
    // Backward adds to a gradient that is there in place, so it stays in the
    // flat buffer.
    leaf.mutable_grad() = torch::from_blob(parameter.grad, parameter.shape);
    // The leaf refers to its node weakly: without this the hook would go.
    accumulators_.push_back(torch::autograd::impl::grad_accumulator(leaf));
    accumulators_.back()->add_post_hook(
        std::make_unique<GradientHook>(&hooks_, index));
    leaves_.push_back(std::move(leaf));
    parameters_.push_back(std::move(parameter));
  }

  torch::Tensor Images(const float* images, int64_t n) const {
    return torch::from_blob(const_cast<float*>(images),
                            {n, spec_.channels, spec_.rows, spec_.cols});
  }
  static torch::Tensor Labels(const int64_t* labels, int64_t n) {
    return torch::from_blob(const_cast<int64_t*>(labels), {n}, torch::kInt64);
  }
  static BatchResult Count(const torch::Tensor& logits,
                           const torch::Tensor& target, double loss_sum) {
    return {.loss_sum = loss_sum,
            .num_correct = logits.argmax(1).eq(target).sum().item<int64_t>(),
            .num_samples = target.size(0)};
  }

  const NetworkSpec spec_;
  const Model model_;
  Buffer weights_;
  Buffer grads_;
  std::vector<Parameter> parameters_;
  std::vector<torch::Tensor> leaves_;  // views of weights_, forward order
  std::vector<std::shared_ptr<torch::autograd::Node>> accumulators_;
  const Hooks* hooks_ = nullptr;  // set during backward
};

}  // namespace

absl::StatusOr<std::unique_ptr<Network>> MakeTorchNetwork(
    const NetworkSpec& spec, Model model) {
  try {
    return std::make_unique<TorchNetwork>(spec, std::move(model));
  } catch (const std::exception& error) {
    return absl::InternalError(
        absl::StrCat("network ", spec.name, ": ", error.what()));
  }
}

}  // namespace telegrad
