#include <array>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "trainer/networks/model_builder.h"

namespace telegrad {
namespace {

struct Depth {
  absl::string_view layers;
  bool has_bottleneck;
  std::array<int, 4> blocks;
};

constexpr Depth kDepths[] = {{"18", false, {2, 2, 2, 2}},
                             {"34", false, {3, 4, 6, 3}},
                             {"50", true, {3, 4, 6, 3}},
                             {"101", true, {3, 4, 23, 3}},
                             {"152", true, {3, 8, 36, 3}}};

// Layers in the order in which tf_cnn_benchmarks counts them.
class ResNetBuilder {
 public:
  explicit ResNetBuilder(const NetworkSpec& spec) : builder_(spec) {}

  // A convolution without bias, normalised.
  int Normalised(int from, int64_t maps, const Window& window) {
    const int64_t fan_in = builder_.shape(from)[0] * window.rows * window.cols;
    const int x =
        builder_.Convolution(from, absl::StrCat("conv", index_), maps, window,
                             {.weight = HeNormal(fan_in), .has_bias = false});
    return builder_.BatchNorm(x, absl::StrCat("bn", index_++));
  }

  // A shortcut where the size or the number of maps changes: a projection.
  int Block(int from, int64_t maps, int64_t stride, bool has_bottleneck) {
    const int64_t out = has_bottleneck ? 4 * maps : maps;
    const bool changes = stride > 1 || builder_.shape(from)[0] != out;
    const int shortcut =
        changes ? Normalised(from, out, Square(1, stride)) : from;
    int x = from;
    if (has_bottleneck) {
      x = builder_.Relu(Normalised(x, maps, Square(1)));
      x = builder_.Relu(Normalised(x, maps, Square(3, stride, 1)));
      x = Normalised(x, out, Square(1));
    } else {
      x = builder_.Relu(Normalised(x, maps, Square(3, stride, 1)));
      x = Normalised(x, out, Square(3, 1, 1));
    }
    return builder_.Relu(builder_.Sum(x, shortcut));
  }

  ModelBuilder& builder() { return builder_; }

 private:
  ModelBuilder builder_;
  int index_ = 0;
};

}  // namespace

// He et al., CVPR 2016: 18 to 152 of table 1, stride in the 3 x 3 convolution
// of a bottleneck (version 1.5), projection shortcuts; images below 64 x 64
// get a first convolution of 3 x 3 and no pool. 20 and 56 are those of section
// 4.2, for CIFAR, with projections where the size changes (option B);
// "20:maps=8" has 8 maps in the place of 16.
absl::StatusOr<Model> MakeResNet(const ModelRequest& request) {
  ResNetBuilder resnet(request.spec);
  ModelBuilder& builder = resnet.builder();
  int x = ModelBuilder::kInput;
  for (const Depth& depth : kDepths) {
    if (request.options != depth.layers) continue;
    const bool is_small = request.spec.rows < kSmallImageSide;
    x = builder.Relu(
        resnet.Normalised(x, 64, is_small ? Square(3, 1, 1) : Square(7, 2, 3)));
    if (!is_small) x = builder.MaxPool(x, Square(3, 2, 1));
    for (size_t stage = 0; stage < depth.blocks.size(); ++stage) {
      for (int i = 0; i < depth.blocks[stage]; ++i) {
        x = resnet.Block(x, int64_t{64} << stage, stage > 0 && i == 0 ? 2 : 1,
                         depth.has_bottleneck);
      }
    }
  }
  ASSIGN_OR_RETURN(const Width narrow, WidthOf(request, 16));
  if (narrow.variant == "20" || narrow.variant == "56") {
    const int blocks = narrow.variant == "20" ? 3 : 9;
    x = builder.Relu(resnet.Normalised(x, narrow.maps, Square(3, 1, 1)));
    for (int stage = 0; stage < 3; ++stage) {
      for (int i = 0; i < blocks; ++i) {
        x = resnet.Block(x, narrow.maps << stage, stage > 0 && i == 0 ? 2 : 1,
                         /*has_bottleneck=*/false);
      }
    }
  }
  return builder.Build(builder.Classes(builder.SpatialMean(x), "fc"));
}

}  // namespace telegrad
