#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <exception>
#include <new>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/device_access.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "trainer/networks/flat_memory.h"
#include "trainer/networks/gpu_faults.h"
#include "trainer/networks/muon.h"
#include "trainer/networks/run_model.h"
#include "trainer/networks/torch_framework.h"

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

torch::ScalarType TypeOf(Dtype dtype) {
  if (dtype == Dtype::kFloat16) return torch::kFloat16;
  return dtype == Dtype::kBfloat16 ? torch::kBFloat16 : torch::kFloat32;
}

std::string TextOf(const std::exception& error) {
  const auto* const told = dynamic_cast<const c10::Error*>(&error);
  return told != nullptr ? told->what_without_backtrace() : error.what();
}

// Whether the CPU's memory was not enough; the framework has no type of its own
// for that.
bool IsNoMemory(const std::exception& error) {
  return dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
         absl::StrContains(error.what(), "DefaultCPUAllocator");
}

// What the framework throws on another device than the CPU.
absl::Status StatusOf(Device device, const std::exception& error) {
  const bool is_memory =
      dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr;
  return is_memory ? NoGpuMemory(device, TextOf(error))
                   : GpuFault(device, TextOf(error));
}

absl::Status NoMemory(const NetworkSpec& spec, const std::exception& error) {
  return absl::ResourceExhaustedError(
      absl::StrCat("network ", spec.name, ": no memory: ", TextOf(error)));
}

class TorchNetwork : public Network {
 public:
  TorchNetwork(const NetworkSpec& spec, Model model)
      : spec_(spec),
        place_(PlaceOf(spec.device)),
        type_(TypeOf(spec.dtype)),
        rounds_(place_.is_cpu() && type_ == torch::kFloat16),
        model_(std::move(model)) {}

  absl::Status Init() {
    size_t num_bytes = 0;
    const std::vector<size_t> offsets = Offsets(model_.parameters, &num_bytes);
    ASSIGN_OR_RETURN(Buffer grads, Buffer::Create(num_bytes));
    grads_.Place(std::move(grads), spec_.device);
    RETURN_IF_ERROR(
        Fill(model_.parameters, offsets, num_bytes, parameters_, weights_));
    for (size_t i = 0; i < offsets.size(); ++i) AddLeaf(i, offsets[i]);
    const std::vector<size_t> places = Offsets(model_.buffers, &num_bytes);
    RETURN_IF_ERROR(
        Fill(model_.buffers, places, num_bytes, buffers_, statistics_));
    for (size_t i = 0; i < places.size(); ++i) {
      statistic_tensors_.push_back(
          statistics_.Part(places[i], buffers_[i].shape));
    }
    return absl::OkStatus();
  }

  Device device() const override { return spec_.device; }
  absl::Status status() const override { return status_; }

  const std::vector<Parameter>& parameters() const override {
    return parameters_;
  }
  const std::vector<Parameter>& buffers() const override { return buffers_; }

  BatchResult ForwardBackward(const float* images, const int64_t* labels,
                              int64_t n, const Hooks& hooks) override {
    return Try([&] {
      const torch::Tensor target = Labels(labels, n);
      const Weights weights(leaves_, hooks.weight_needed);
      const Logits logits = Forward(model_, Input(images, n),
                                    {.weights = weights,
                                     .buffers = statistic_tensors_,
                                     .is_training = true,
                                     .seed = spec_.seed,
                                     .draw = hooks.draw,
                                     .type = type_,
                                     .rounds = rounds_});
      if (!hooks.accumulates) grads_.Clear();
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
      if (spec_.device != Device{}) return Keep(main, target, loss);
      return Count(main, target, loss.item<double>() * double(target.size(0)));
    });
  }

  BatchResult Evaluate(const float* images, const int64_t* labels,
                       int64_t n) override {
    return Try([&] {
      torch::NoGradGuard no_grad;
      const torch::Tensor target = Labels(labels, n);
      const Weights weights(leaves_);
      const torch::Tensor logits = Rows(Forward(model_, Input(images, n),
                                                {.weights = weights,
                                                 .buffers = statistic_tensors_,
                                                 .type = type_,
                                                 .rounds = rounds_})
                                            .main);
      const torch::Tensor loss = torch::cross_entropy_loss(
          logits, target, /*weight=*/{}, at::Reduction::Sum);
      return Count(logits, target, loss.item<double>());
    });
  }

  bool ScaleGradients(float factor) override {
    bool are_finite = false;
    Try([&] {
      are_finite = grads_.Scale(factor);
      return BatchResult{};
    });
    return are_finite;
  }

  void ClipGradients(float most) override {
    Try([&] {
      grads_.Clip(most);
      return BatchResult{};
    });
  }

  void StepByMuon(size_t index, const MuonStep& step, float* m) override {
    Try([&] {
      const Parameter& own = parameters_[index];
      const auto matrix = [&](float* values) {
        return TensorOf(values, own.num_elements).view({own.shape[0], -1});
      };
      torch::NoGradGuard no_grad;
      telegrad::StepByMuon(step, matrix(own.grad), matrix(m),
                           matrix(own.weight));
      return BatchResult{};
    });
  }

  BatchResult TakeResults() override {
    return Try([&] {
      if (num_kept_ == 0) return BatchResult{};
      const BatchResult kept = {.loss_sum = kept_loss_.item<double>(),
                                .num_correct = kept_hits_.item<int64_t>(),
                                .num_samples = num_kept_};
      num_kept_ = 0;
      return kept;
    });
  }

  void Read(const float* from, size_t n, float* to) override {
    Try([&] {
      OnHost(to, n).copy_(TensorOf(const_cast<float*>(from), n));
      return BatchResult{};
    });
  }
  void Write(const float* from, size_t n, float* to) override {
    Try([&] {
      TensorOf(to, n).copy_(OnHost(const_cast<float*>(from), n));
      return BatchResult{};
    });
  }

 private:
  absl::Status Fill(const std::vector<ModelTensor>& described,
                    const std::vector<size_t>& offsets, size_t num_bytes,
                    std::vector<Parameter>& tensors, FlatMemory& memory) {
    ASSIGN_OR_RETURN(Buffer filled, Buffer::Create(num_bytes));
    for (size_t i = 0; i < offsets.size(); ++i) {
      tensors.push_back({.name = described[i].name,
                         .shape = described[i].shape,
                         .num_elements = NumElements(described[i].shape),
                         .weight = filled.as<float>() + offsets[i],
                         .is_hidden = described[i].is_hidden});
      FillTensor(tensors[i], described[i].fill, spec_.seed, i);
    }
    memory.Place(std::move(filled), spec_.device);
    for (size_t i = 0; i < offsets.size(); ++i) {
      tensors[i].weight = memory.first() + offsets[i];
    }
    return absl::OkStatus();
  }

  void AddLeaf(size_t index, size_t offset) {
    Parameter& parameter = parameters_[index];
    parameter.grad = grads_.first() + offset;
    torch::Tensor leaf = weights_.Part(offset, parameter.shape);
    leaf.set_requires_grad(true);
    // Backward adds to a gradient that is there in place, so it stays in the
    // flat buffer.
    leaf.mutable_grad() = grads_.Part(offset, parameter.shape);
    // The leaf refers to its node weakly: without this the hook would go.
    accumulators_.push_back(torch::autograd::impl::grad_accumulator(leaf));
    accumulators_.back()->add_post_hook(
        std::make_unique<GradientHook>(&hooks_, index));
    leaves_.push_back(std::move(leaf));
  }

  // What the framework throws on another device than the CPU becomes status(),
  // and on any where memory is short.
  template <typename Body>
  BatchResult Try(const Body& body) {
    try {
      return body();
    } catch (const std::exception& error) {
      hooks_ = nullptr;
      if (IsNoMemory(error)) {
        status_.Update(NoMemory(spec_, error));
      } else if (spec_.device == Device{}) {
        CheckFailed(__FILE__, __LINE__, error.what());
      } else {
        status_.Update(StatusOf(spec_.device, error));
      }
      return {};
    }
  }

  static torch::Tensor OnHost(float* values, size_t n) {
    return torch::from_blob(values, {static_cast<int64_t>(n)});
  }
  torch::Tensor TensorOf(float* values, size_t n) const {
    return torch::from_blob(Reach(Bytes(values, 4 * n, spec_.device)).data,
                            {static_cast<int64_t>(n)},
                            torch::TensorOptions().device(place_));
  }
  // From pinned memory, so that nothing waits.
  torch::Tensor OnDevice(const torch::Tensor& host) const {
    if (place_.is_cpu()) return host;
    return host.pin_memory().to(place_, /*non_blocking=*/true);
  }
  // Adds to what TakeResults gives.
  BatchResult Keep(const torch::Tensor& logits, const torch::Tensor& target,
                   const torch::Tensor& loss) {
    const torch::Tensor sum = loss.to(torch::kFloat64) * double(target.size(0));
    const torch::Tensor hits = logits.argmax(1).eq(target).sum();
    kept_loss_ = num_kept_ == 0 ? sum : kept_loss_ + sum;
    kept_hits_ = num_kept_ == 0 ? hits : kept_hits_ + hits;
    num_kept_ += target.size(0);
    return {};
  }
  torch::Tensor Input(const float* values, int64_t n) const {
    std::vector<int64_t> shape = model_.nodes[0].shape;
    shape.insert(shape.begin(), n);
    return OnDevice(torch::from_blob(const_cast<float*>(values), shape));
  }
  torch::Tensor Labels(const int64_t* labels, int64_t n) const {
    return OnDevice(torch::from_blob(const_cast<int64_t*>(labels),
                                     {n * model_.predictions_per_sample()},
                                     torch::kInt64));
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
  const torch::Device place_;
  const torch::ScalarType type_;
  const bool rounds_;
  const Model model_;
  absl::Status status_;
  FlatMemory weights_;
  FlatMemory grads_;
  FlatMemory statistics_;
  torch::Tensor kept_loss_;  // f64
  torch::Tensor kept_hits_;
  int64_t num_kept_ = 0;
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
    if (IsNoMemory(error)) return NoMemory(spec, error);
    if (spec.device != Device{}) return StatusOf(spec.device, error);
    return absl::InternalError(
        absl::StrCat("network ", spec.name, ": ", error.what()));
  }
}

}  // namespace telegrad
