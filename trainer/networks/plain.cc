#include <array>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "trainer/networks/model_builder.h"

namespace telegrad {
namespace {

constexpr int64_t kWide = 4096;  // units of the dense layers
// The share of the dense layers' units that is left out in training.
constexpr float kForgotten = 0.5f;

int ConvolveAndRelu(ModelBuilder& builder, int from, int index, int64_t maps,
                    const Window& window) {
  const int64_t fan_in = builder.shape(from)[0] * window.rows * window.cols;
  return builder.Relu(builder.Convolution(from, absl::StrCat("conv", index),
                                          maps, window,
                                          {.weight = HeUniform(fan_in)}));
}

// Two wide layers with dropout, then one unit for each class.
int WideClasses(ModelBuilder& builder, int from) {
  int x = builder.Flatten(from);
  for (const char* name : {"fc1", "fc2"}) {
    x = builder.Dense(x, name, kWide, HeUniform(builder.shape(x)[0]));
    x = builder.Dropout(builder.Relu(x), kForgotten);
  }
  return builder.Classes(x, "fc3");
}

}  // namespace

// Krizhevsky, One weird trick, arXiv 1404.5997, as tf_cnn_benchmarks has it.
absl::StatusOr<Model> MakeAlexNet(const ModelRequest& request) {
  constexpr Window kPool = Square(3, 2);
  ModelBuilder builder(request.spec);
  int x = ModelBuilder::kInput;
  x = ConvolveAndRelu(builder, x, 0, 64, Square(11, 4, 2));
  x = builder.MaxPool(x, kPool);
  x = ConvolveAndRelu(builder, x, 1, 192, Same(5, 5));
  x = builder.MaxPool(x, kPool);
  x = ConvolveAndRelu(builder, x, 2, 384, Same(3, 3));
  x = ConvolveAndRelu(builder, x, 3, 384, Same(3, 3));
  x = ConvolveAndRelu(builder, x, 4, 256, Same(3, 3));
  x = builder.MaxPool(x, kPool);
  return builder.Build(WideClasses(builder, x));
}

// Simonyan and Zisserman, ICLR 2015, table 1, A and D. Images below 64 x 64
// get the form of CIFAR networks: batch normalisation behind each convolution
// and a single dense layer. "16:maps=32" has 32 maps in the place of 64.
absl::StatusOr<Model> MakeVgg(const ModelRequest& request) {
  ASSIGN_OR_RETURN(const Width width, WidthOf(request, 64));
  const bool is_deep = width.variant == "16";
  const std::array<int, 5> repeats =
      is_deep ? std::array{2, 2, 3, 3, 3} : std::array{1, 1, 2, 2, 2};
  const bool is_small = request.spec.rows < kSmallImageSide;
  ModelBuilder builder(request.spec);
  int x = ModelBuilder::kInput;
  int64_t maps = width.maps;
  int index = 0;
  for (size_t stage = 0; stage < repeats.size(); ++stage) {
    for (int i = 0; i < repeats[stage]; ++i, ++index) {
      if (!is_small) {
        x = ConvolveAndRelu(builder, x, index, maps, Same(3, 3));
        continue;
      }
      const std::string name = absl::StrCat("conv", index);
      x = builder.Convolution(
          x, name, maps, Same(3, 3),
          {.weight = HeUniform(builder.shape(x)[0] * 9), .has_bias = false});
      x = builder.Relu(builder.BatchNorm(x, absl::StrCat("bn", index)));
    }
    x = builder.MaxPool(x, Square(2, 2));
    if (stage < 3) maps *= 2;
  }
  if (!is_small) return builder.Build(WideClasses(builder, x));
  return builder.Build(builder.Classes(builder.Flatten(x), "fc"));
}

}  // namespace telegrad
