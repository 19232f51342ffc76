#include "absl/strings/str_cat.h"
#include "trainer/networks/model.h"

namespace telegrad {
namespace {

constexpr int64_t kKernel = 5;
constexpr int64_t kPool = 2;
constexpr int64_t kMaps1 = 20;
constexpr int64_t kMaps2 = 50;
constexpr int64_t kHidden = 500;
constexpr int kLeastSide = 16;  // leaves one pixel after both convolutions

int64_t SideAfter(int64_t side) { return (side - kKernel + 1) / kPool; }

void AddConvolution(Model& model, const std::string& name, int64_t in,
                    int64_t out) {
  constexpr int64_t kArea = kKernel * kKernel;
  model.parameters.push_back({name + ".weight",
                              {out, in, kKernel, kKernel},
                              XavierBound(in * kArea, out * kArea)});
  model.parameters.push_back({name + ".bias", {out}, 0.0f});
}

torch::Tensor ConvolveAndPool(const torch::Tensor& x,
                              const torch::Tensor& weight,
                              const torch::Tensor& bias) {
  return torch::max_pool2d(torch::tanh(torch::conv2d(x, weight, bias)), kPool);
}

}  // namespace

// As in MXNet's example/image-classification/symbols/lenet.py.
absl::StatusOr<Model> MakeLeNet(const NetworkSpec& spec) {
  if (spec.rows < kLeastSide || spec.cols < kLeastSide) {
    return absl::InvalidArgumentError(
        absl::StrCat("lenet needs images of at least ", kLeastSide, " x ",
                     kLeastSide, ", not ", spec.rows, " x ", spec.cols));
  }
  Model model;
  const int64_t pixels_left =
      SideAfter(SideAfter(spec.rows)) * SideAfter(SideAfter(spec.cols));
  AddConvolution(model, "conv1", spec.channels, kMaps1);
  AddConvolution(model, "conv2", kMaps1, kMaps2);
  AddDense(model, "fc1", kMaps2 * pixels_left, kHidden,
           XavierBound(kMaps2 * pixels_left, kHidden));
  AddDense(model, "fc2", kHidden, spec.num_classes,
           XavierBound(kHidden, spec.num_classes));
  model.forward = [](const torch::Tensor& images, const Weights& weights) {
    torch::Tensor x = ConvolveAndPool(images, weights[0], weights[1]);
    x = ConvolveAndPool(x, weights[2], weights[3]).flatten(1);
    x = torch::tanh(torch::linear(x, weights[4], weights[5]));
    return torch::linear(x, weights[6], weights[7]);
  };
  return model;
}

}  // namespace telegrad
