#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/networks/network.h"

namespace telegrad {

// Initial values of a tensor: all alike, or drawn from the seed.
struct Fill {
  enum class Rule : uint8_t { kConstant, kUniform, kNormal };
  Rule rule = Rule::kConstant;
  float value = 0.0f;  // the constant, the bound, the standard deviation
};

// Rules that keep the variance of what passes through a layer. Xavier: of
// linear and tanh layers, 2 / (fan_in + fan_out); Glorot and Bengio, AISTATS
// 2010, equations 12 and 16. He: of ReLU layers, 2 / fan_in; He et al., ICCV
// 2015, equation 10. A uniform bound is sqrt(3) standard deviations.
Fill XavierUniform(int64_t fan_in, int64_t fan_out);
Fill XavierNormal(int64_t fan_in, int64_t fan_out);
Fill HeUniform(int64_t fan_in);
Fill HeNormal(int64_t fan_in);
Fill Normal(float stddev);
Fill Constant(float value);

struct ModelTensor {
  std::string name;
  std::vector<int64_t> shape;
  Fill fill;
  bool is_hidden = false;  // as a Parameter is
};

// A step of forward. Parameters and buffers that it takes lie behind each
// other, from `parameter` and `buffer` on.
enum class Op : uint8_t {
  kInput,
  kConvolution,  // weight [out, in, rows, cols], bias unless it has none
  kDense,        // over the last dimension: weight [out, in], bias
  kBatchNorm,    // weight (gamma) unless it has none, bias (beta); buffers mean
                 // and variance
  kLayerNorm,    // over the last dimension: weight, bias
  kTanh,
  kRelu,
  kGelu,
  kMaxPool,
  kAveragePool,  // the mean of what lies within the image
  kSpatialMean,  // [c, rows, cols] -> [c]
  kFlatten,
  kDropout,
  kAdd,
  kConcat,     // along the first dimension
  kEmbedding,  // token ids [t] -> [t, width]: weight [tokens, width]
  kPositions,  // adds weight [t, width]
  kAttention,  // causal, of queries, keys and values side by side
};

struct Window {
  int64_t rows = 1;
  int64_t cols = 1;
  int64_t stride = 1;
  int64_t pad_rows = 0;
  int64_t pad_cols = 0;
};

// A square one.
constexpr Window Square(int64_t side, int64_t stride = 1, int64_t pad = 0) {
  return {side, side, stride, pad, pad};
}
// The smallest odd-sided padding that keeps the size at stride 1.
constexpr Window Same(int64_t rows, int64_t cols) {
  return {rows, cols, 1, rows / 2, cols / 2};
}

struct Node {
  Op op = Op::kInput;
  std::vector<int> inputs = {};
  std::vector<int64_t> shape = {};  // the result's for one sample
  int parameter = -1;
  int num_parameters = 0;
  int buffer = -1;
  Window window = {};
  int64_t num_heads = 1;
  float rate = 0.0f;                // dropout: what goes
  std::vector<int> ends_here = {};  // nodes that nobody reads afterwards
};

// What a network is, without state and without a framework: a new one is a
// function that returns this and a line in trainer/networks/registry.cc.
struct Model {
  std::vector<ModelTensor> parameters;  // forward order
  std::vector<ModelTensor> buffers;     // statistics, not learned
  std::vector<Node> nodes;              // each after its inputs
  int logits = 0;                       // the node, [..., num_classes]
  int auxiliary = -1;                   // a second one, in training
  float auxiliary_weight = 0.0f;        // weighs the loss of `auxiliary`

  // Predictions for a sample: 1, or how many positions are classified.
  int64_t predictions_per_sample() const;
  int64_t num_elems() const;  // elements of the parameters
  // With fewer samples a normalised channel may have a single value, whose
  // variance is none.
  int64_t least_batch() const;
};

// The text behind the name, "4096,4096" of "mlp:4096,4096".
struct ModelRequest {
  const NetworkSpec& spec;
  std::string options;
};

// The model that `spec` names. Errors as MakeNetwork's.
absl::StatusOr<Model> MakeModel(const NetworkSpec& spec);

absl::StatusOr<Model> MakeLinear(const ModelRequest& request);
absl::StatusOr<Model> MakeMlp(const ModelRequest& request);
absl::StatusOr<Model> MakeLeNet(const ModelRequest& request);
absl::StatusOr<Model> MakeAlexNet(const ModelRequest& request);
absl::StatusOr<Model> MakeVgg(const ModelRequest& request);
absl::StatusOr<Model> MakeResNet(const ModelRequest& request);
absl::StatusOr<Model> MakeInception(const ModelRequest& request);
absl::StatusOr<Model> MakeGpt(const ModelRequest& request);
// What context= says, or its default.
absl::StatusOr<int> GptContext(const std::string& options);

}  // namespace telegrad
