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
#include "base/status_macros.h"
#include "trainer/networks/run_model.h"

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

void FillTensor(const Parameter& parameter, const Fill& fill, uint64_t seed,
                size_t index) {
  Random random(seed, kWeightStream | index);
  for (size_t i = 0; i < parameter.num_elements; ++i) {
    float& value = parameter.weight[i];
    switch (fill.rule) {
      case Fill::Rule::kConstant:
        value = fill.value;
        break;
      case Fill::Rule::kUniform:
        value = random.NextUniform(-fill.value, fill.value);
        break;
      case Fill::Rule::kNormal:
        value = fill.value * random.NextNormal();
        break;
    }
  }
}

// Where each tensor of a list lies in one flat memory.
std::vector<size_t> Offsets(const std::vector<ModelTensor>& tensors,
                            size_t* num_bytes) {
  std::vector<size_t> offsets;
  size_t total = 0;
  for (const ModelTensor& each : tensors) {
    offsets.push_back(total);
    total += PaddedElements(NumElements(each.shape));
  }
  *num_bytes = total * sizeof(float);
  return offsets;
}

class TorchNetwork : public Network {
 public:
  TorchNetwork(const NetworkSpec& spec, Model model)
      : spec_(spec), model_(std::move(model)) {}

  absl::Status Init() {
    size_t num_bytes = 0;
    const std::vector<size_t> offsets = Offsets(model_.parameters, &num_bytes);
    ASSIGN_OR_RETURN(weights_, Buffer::Create(num_bytes));
    ASSIGN_OR_RETURN(grads_, Buffer::Create(num_bytes));
    for (size_t i = 0; i < offsets.size(); ++i) AddParameter(i, offsets[i]);
    const std::vector<size_t> places = Offsets(model_.buffers, &num_bytes);
    ASSIGN_OR_RETURN(statistics_, Buffer::Create(num_bytes));
    for (size_t i = 0; i < places.size(); ++i) {
      const ModelTensor& described = model_.buffers[i];
      buffers_.push_back({.name = described.name,
                          .shape = described.shape,
                          .num_elements = NumElements(described.shape),
                          .weight = statistics_.as<float>() + places[i]});
      FillTensor(buffers_[i], described.fill, spec_.seed, i);
      statistic_tensors_.push_back(
          torch::from_blob(buffers_[i].weight, buffers_[i].shape));
    }
    return absl::OkStatus();
  }

  const std::vector<Parameter>& parameters() const override {
    return parameters_;
  }
  const std::vector<Parameter>& buffers() const override { return buffers_; }

  BatchResult ForwardBackward(const float* images, const int64_t* labels,
                              int64_t n, const Hooks& hooks) override {
    try {
      const torch::Tensor target = Labels(labels, n);
      const Weights weights(leaves_, hooks.weight_needed);
      const Logits logits = Forward(model_, Input(images, n),
                                    {.weights = weights,
                                     .buffers = statistic_tensors_,
                                     .is_training = true,
                                     .seed = spec_.seed,
                                     .draw = hooks.draw});
      if (!hooks.accumulates) std::memset(grads_.data(), 0, grads_.size());
      const torch::Tensor main = Rows(logits.main);
      const torch::Tensor loss = Loss(main, target);
      torch::Tensor whole = loss;
      if (logits.auxiliary.defined()) {
        whole = whole +
                model_.auxiliary_weight * Loss(Rows(logits.auxiliary), target);
      }
      if (hooks.share != 1.0f) whole = whole * hooks.share;
      hooks_ = &hooks;
      whole.backward();
      hooks_ = nullptr;
      torch::NoGradGuard no_grad;
      return Count(main, target, loss.item<double>() * double(target.size(0)));
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
      const torch::Tensor logits =
          Rows(Forward(model_, Input(images, n),
                       {.weights = weights, .buffers = statistic_tensors_})
                   .main);
      const torch::Tensor loss = torch::cross_entropy_loss(
          logits, target, /*weight=*/{}, at::Reduction::Sum);
      return Count(logits, target, loss.item<double>());
    } catch (const std::exception& error) {
      CheckFailed(__FILE__, __LINE__, error.what());
    }
  }

 private:
  void AddParameter(size_t index, size_t offset) {
    const ModelTensor& described = model_.parameters[index];
    Parameter parameter{.name = described.name,
                        .shape = described.shape,
                        .num_elements = NumElements(described.shape),
                        .weight = weights_.as<float>() + offset,
                        .grad = grads_.as<float>() + offset};
    FillTensor(parameter, described.fill, spec_.seed, index);
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

  torch::Tensor Input(const float* values, int64_t n) const {
    std::vector<int64_t> shape = model_.nodes[0].shape;
    shape.insert(shape.begin(), n);
    return torch::from_blob(const_cast<float*>(values), shape);
  }
  torch::Tensor Labels(const int64_t* labels, int64_t n) const {
    return torch::from_blob(const_cast<int64_t*>(labels),
                            {n * model_.predictions_per_sample()},
                            torch::kInt64);
  }
  torch::Tensor Loss(const torch::Tensor& logits,
                     const torch::Tensor& target) const {
    return torch::cross_entropy_loss(
        logits, target, /*weight=*/{}, at::Reduction::Mean,
        /*ignore_index=*/-100, static_cast<double>(spec_.label_smoothing));
  }
  // One row of classes for each prediction.
  static torch::Tensor Rows(const torch::Tensor& logits) {
    return logits.dim() == 2 ? logits : logits.flatten(0, -2);
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
  Buffer statistics_;
  std::vector<Parameter> parameters_;
  std::vector<Parameter> buffers_;
  std::vector<torch::Tensor> statistic_tensors_;  // views of statistics_
  std::vector<torch::Tensor> leaves_;  // views of weights_, forward order
  std::vector<std::shared_ptr<torch::autograd::Node>> accumulators_;
  const Hooks* hooks_ = nullptr;  // set during backward
};

}  // namespace

absl::StatusOr<std::unique_ptr<Network>> MakeNetwork(const NetworkSpec& spec) {
  ASSIGN_OR_RETURN(Model model, MakeModel(spec));
  try {
    auto network = std::make_unique<TorchNetwork>(spec, std::move(model));
    RETURN_IF_ERROR(network->Init());
    return network;
  } catch (const std::exception& error) {
    return absl::InternalError(
        absl::StrCat("network ", spec.name, ": ", error.what()));
  }
}

}  // namespace telegrad
