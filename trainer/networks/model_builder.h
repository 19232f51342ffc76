#pragma once

#include <string>
#include <vector>

#include "trainer/networks/model.h"

namespace telegrad {

// "20:maps=8": a variant, and the maps of its first convolution.
struct Width {
  absl::string_view variant;
  int64_t maps;
};
// InvalidArgument says what is no number of maps; without one it is `maps`.
absl::StatusOr<Width> WidthOf(const ModelRequest& request, int64_t maps);

// Puts a model together, layer by layer; each layer returns its node, for those
// that read it. Follows the shapes: the first layer that its input is too small
// for is what Build refuses.
class ModelBuilder {
 public:
  explicit ModelBuilder(const NetworkSpec& spec);

  static constexpr int kInput = 0;
  const std::vector<int64_t>& shape(int node) const;

  struct Affine {
    Fill weight = {};
    bool has_bias = true;
  };
  int Convolution(int from, const std::string& name, int64_t out,
                  const Window& window, const Affine& affine);
  int Dense(int from, const std::string& name, int64_t out, Fill weight);
  int BatchNorm(int from, const std::string& name, bool has_gamma = true);
  int LayerNorm(int from, const std::string& name);
  int Tanh(int from) { return Add({.op = Op::kTanh, .inputs = {from}}); }
  int Relu(int from) { return Add({.op = Op::kRelu, .inputs = {from}}); }
  int Gelu(int from) { return Add({.op = Op::kGelu, .inputs = {from}}); }
  int Dropout(int from, float rate);
  int MaxPool(int from, const Window& window);
  int AveragePool(int from, const Window& window);
  int SpatialMean(int from);
  int Flatten(int from);
  int Sum(int a, int b) { return Add({.op = Op::kAdd, .inputs = {a, b}}); }
  int Concat(const std::vector<int>& from);
  int Embedding(int from, const std::string& name, int64_t tokens,
                int64_t width);
  int Positions(int from, const std::string& name);
  int Attention(int from, int64_t num_heads);

  // Dense with a class each and Xavier's values.
  int Classes(int from, const std::string& name);
  // InvalidArgument names what is too small, and the layer.
  absl::StatusOr<Model> Build(int logits, int auxiliary = -1,
                              float auxiliary_weight = 0.0f);

 private:
  // With the first input's shape, unless it has one.
  int Add(Node node);
  int AddWindowed(Node node, const std::string& what, int64_t out);
  void AddParameter(const std::string& name, std::vector<int64_t> shape,
                    Fill fill);

  const NetworkSpec& spec_;
  Model model_;
  absl::Status status_;
};

}  // namespace telegrad
