#include <vector>

#include "absl/strings/str_cat.h"
#include "trainer/networks/model_builder.h"

namespace telegrad {
namespace {

constexpr Window kHalve = Square(3, 2);

// The parts of Szegedy et al., CVPR 2016, figures 5 to 7, with their
// convolutions in the order in which tf_cnn_benchmarks counts them.
class InceptionBuilder {
 public:
  explicit InceptionBuilder(const NetworkSpec& spec) : builder_(spec) {}

  int Convolve(int from, int64_t maps, const Window& window) {
    const int64_t fan_in = builder_.shape(from)[0] * window.rows * window.cols;
    const int x =
        builder_.Convolution(from, absl::StrCat("conv", index_), maps, window,
                             {.weight = HeNormal(fan_in), .has_bias = false});
    return builder_.Relu(builder_.BatchNorm(x, absl::StrCat("bn", index_++),
                                            /*has_gamma=*/false));
  }
  int Point(int from, int64_t maps) { return Convolve(from, maps, Square(1)); }
  int PoolAndPoint(int from, int64_t maps) {
    return Point(builder_.AveragePool(from, Square(3, 1, 1)), maps);
  }

  int PartA(int from, int64_t pooled) {
    const int a = Point(from, 64);
    const int b = Convolve(Point(from, 48), 64, Same(5, 5));
    int c = Convolve(Point(from, 64), 96, Same(3, 3));
    c = Convolve(c, 96, Same(3, 3));
    return builder_.Concat({a, b, c, PoolAndPoint(from, pooled)});
  }
  int PartB(int from) {
    const int a = Convolve(from, 384, kHalve);
    int b = Convolve(Point(from, 64), 96, Same(3, 3));
    b = Convolve(b, 96, kHalve);
    return builder_.Concat({a, b, builder_.MaxPool(from, kHalve)});
  }
  int PartC(int from, int64_t maps) {
    const int a = Point(from, 192);
    int b = Convolve(Point(from, maps), maps, Same(1, 7));
    b = Convolve(b, 192, Same(7, 1));
    int c = Convolve(Point(from, maps), maps, Same(7, 1));
    c = Convolve(c, maps, Same(1, 7));
    c = Convolve(c, maps, Same(7, 1));
    c = Convolve(c, 192, Same(1, 7));
    return builder_.Concat({a, b, c, PoolAndPoint(from, 192)});
  }
  int PartD(int from) {
    const int a = Convolve(Point(from, 192), 320, kHalve);
    int b = Convolve(Point(from, 192), 192, Same(1, 7));
    b = Convolve(b, 192, Same(7, 1));
    b = Convolve(b, 192, kHalve);
    return builder_.Concat({a, b, builder_.MaxPool(from, kHalve)});
  }
  int PartE(int from) {
    std::vector<int> parts = {Point(from, 320)};
    const auto add_both = [&](int x) {
      parts.push_back(Convolve(x, 384, Same(1, 3)));
      parts.push_back(Convolve(x, 384, Same(3, 1)));
    };
    add_both(Point(from, 384));
    add_both(Convolve(Point(from, 448), 384, Same(3, 3)));
    parts.push_back(PoolAndPoint(from, 192));
    return builder_.Concat(parts);
  }

  ModelBuilder& builder() { return builder_; }

 private:
  ModelBuilder builder_;
  int index_ = 0;
};

}  // namespace

// Szegedy et al., CVPR 2016, as tf_cnn_benchmarks has it: batch normalisation
// without gamma. ":aux" adds the second head of figure 8, whose loss counts 0.4
// in training.
absl::StatusOr<Model> MakeInception(const ModelRequest& request) {
  const bool has_auxiliary = request.options == "aux";
  if (!has_auxiliary && !request.options.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "network ", request.spec.name, ": the only option is ':aux'"));
  }
  InceptionBuilder inception(request.spec);
  ModelBuilder& builder = inception.builder();
  int x = inception.Convolve(ModelBuilder::kInput, 32, kHalve);
  x = inception.Convolve(x, 32, Square(3));
  x = builder.MaxPool(inception.Convolve(x, 64, Same(3, 3)), kHalve);
  x = inception.Convolve(inception.Point(x, 80), 192, Square(3));
  x = builder.MaxPool(x, kHalve);
  for (const int64_t pooled : {32, 64, 64}) x = inception.PartA(x, pooled);
  x = inception.PartB(x);
  for (const int64_t maps : {128, 160, 160, 192}) x = inception.PartC(x, maps);
  int auxiliary = -1;
  if (has_auxiliary) {
    int y = builder.AveragePool(x, Square(5, 3));
    y = inception.Convolve(inception.Point(y, 128), 768, Square(5));
    auxiliary = builder.Classes(builder.SpatialMean(y), "auxiliary");
  }
  x = inception.PartE(inception.PartE(inception.PartD(x)));
  x = builder.Classes(builder.SpatialMean(x), "fc");
  return builder.Build(x, auxiliary, has_auxiliary ? 0.4f : 0.0f);
}

}  // namespace telegrad
