#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "trainer/networks/model_builder.h"

namespace telegrad {
namespace {

constexpr int64_t kMostUnits = 65536;  // units of a hidden layer
constexpr size_t kMostLayers = 64;

// Tanh and a pool behind a convolution of 5 x 5.
int ConvolveAndPool(ModelBuilder& builder, int from, const std::string& name,
                    int64_t maps) {
  constexpr int64_t kKernel = 5;
  constexpr int64_t kArea = kKernel * kKernel;
  const int64_t in = builder.shape(from)[0];
  const int x =
      builder.Convolution(from, name, maps, Square(kKernel),
                          {.weight = XavierUniform(in * kArea, maps * kArea)});
  return builder.MaxPool(builder.Tanh(x), Square(2, 2));
}

}  // namespace

absl::StatusOr<Model> MakeLinear(const ModelRequest& request) {
  ModelBuilder builder(request.spec);
  return builder.Build(
      builder.Classes(builder.Flatten(ModelBuilder::kInput), "fc"));
}

// As in MXNet's example/image-classification/symbols/mlp.py; its hidden layers
// have 128 and 64 units.
absl::StatusOr<Model> MakeMlp(const ModelRequest& request) {
  std::vector<int64_t> hidden;
  const std::string widths =
      request.options.empty() ? "128,64" : request.options;
  for (const absl::string_view text : absl::StrSplit(widths, ',')) {
    int64_t units = 0;
    if (!absl::SimpleAtoi(text, &units) || units < 1 || units > kMostUnits ||
        hidden.size() == kMostLayers) {
      return absl::InvalidArgumentError(absl::StrCat(
          "network mlp:", widths, ": '", text, "' is no layer of 1 to ",
          kMostUnits, " units; at most ", kMostLayers, " layers"));
    }
    hidden.push_back(units);
  }
  ModelBuilder builder(request.spec);
  int x = builder.Flatten(ModelBuilder::kInput);
  for (size_t i = 0; i < hidden.size(); ++i) {
    x = builder.Relu(builder.Dense(x, absl::StrCat("fc", i + 1), hidden[i],
                                   HeUniform(builder.shape(x).back())));
  }
  return builder.Build(
      builder.Classes(x, absl::StrCat("fc", hidden.size() + 1)));
}

// As in MXNet's example/image-classification/symbols/lenet.py.
absl::StatusOr<Model> MakeLeNet(const ModelRequest& request) {
  ModelBuilder builder(request.spec);
  int x = ConvolveAndPool(builder, ModelBuilder::kInput, "conv1", 20);
  x = builder.Flatten(ConvolveAndPool(builder, x, "conv2", 50));
  constexpr int64_t kHidden = 500;
  x = builder.Dense(x, "fc1", kHidden,
                    XavierUniform(builder.shape(x)[0], kHidden));
  return builder.Build(builder.Classes(builder.Tanh(x), "fc2"));
}

}  // namespace telegrad
