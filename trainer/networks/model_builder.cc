#include "trainer/networks/model_builder.h"

#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/check.h"

namespace telegrad {
namespace {

int64_t Product(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1},
                         std::multiplies<>());
}

float DeviationOf(int64_t fans, float gain) {
  return std::sqrt(gain / static_cast<float>(fans));
}

std::vector<int64_t> InputShape(const NetworkSpec& spec) {
  if (spec.context > 0) return {spec.context};
  return {spec.channels, spec.rows, spec.cols};
}

}  // namespace

Fill XavierUniform(int64_t fan_in, int64_t fan_out) {
  return {Fill::Rule::kUniform, DeviationOf(fan_in + fan_out, 6.0f)};
}
Fill XavierNormal(int64_t fan_in, int64_t fan_out) {
  return Normal(DeviationOf(fan_in + fan_out, 2.0f));
}
Fill HeUniform(int64_t fan_in) {
  return {Fill::Rule::kUniform, DeviationOf(fan_in, 6.0f)};
}
Fill HeNormal(int64_t fan_in) { return Normal(DeviationOf(fan_in, 2.0f)); }
Fill Normal(float stddev) { return {Fill::Rule::kNormal, stddev}; }
Fill Constant(float value) { return {Fill::Rule::kConstant, value}; }

int64_t Model::predictions_per_sample() const {
  const std::vector<int64_t>& shape = nodes[static_cast<size_t>(logits)].shape;
  return Product(shape) / shape.back();
}

int64_t Model::num_elems() const {
  int64_t count = 0;
  for (const ModelTensor& each : parameters) count += Product(each.shape);
  return count;
}

int64_t Model::least_batch() const {
  for (const Node& node : nodes) {
    if (node.op == Op::kBatchNorm && node.shape[1] * node.shape[2] == 1) {
      return 2;
    }
  }
  return 1;
}

absl::StatusOr<Width> WidthOf(const ModelRequest& request, int64_t maps) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(request.options, absl::MaxSplits(':', 1));
  absl::string_view number = parts.second;
  if (request.options.size() > parts.first.size() &&
      (!absl::ConsumePrefix(&number, "maps=") ||
       !absl::SimpleAtoi(number, &maps) || maps < 1 || maps > 1024)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "network ", request.spec.name, ": '", parts.second,
        "': it takes maps=, those of the first convolution: 1 to 1024"));
  }
  return Width{parts.first, maps};
}

ModelBuilder::ModelBuilder(const NetworkSpec& spec) : spec_(spec) {
  model_.nodes.push_back({.op = Op::kInput, .shape = InputShape(spec)});
}

const std::vector<int64_t>& ModelBuilder::shape(int node) const {
  return model_.nodes[static_cast<size_t>(node)].shape;
}

int ModelBuilder::Add(Node node) {
  if (node.shape.empty()) node.shape = shape(node.inputs[0]);
  model_.nodes.push_back(std::move(node));
  return static_cast<int>(model_.nodes.size()) - 1;
}

void ModelBuilder::AddParameter(const std::string& name,
                                std::vector<int64_t> shape, Fill fill) {
  model_.parameters.push_back({name, std::move(shape), fill});
}

int ModelBuilder::AddWindowed(Node node, const std::string& what, int64_t out) {
  const std::vector<int64_t> in = shape(node.inputs[0]);
  TELEGRAD_CHECK(in.size() == 3, "windows lie on images");
  const Window& window = node.window;
  const auto left = [&](int64_t side, int64_t pad, int64_t size) {
    const int64_t room = side + 2 * pad - size;
    return room < 0 ? 0 : room / window.stride + 1;
  };
  node.shape = {out, left(in[1], window.pad_rows, window.rows),
                left(in[2], window.pad_cols, window.cols)};
  if (status_.ok() && node.shape[1] * node.shape[2] == 0) {
    status_ = absl::InvalidArgumentError(
        absl::StrCat(spec_.name, " needs larger images than ", spec_.rows,
                     " x ", spec_.cols, ": ", what, " of ", window.rows, " x ",
                     window.cols, " meets ", in[1], " x ", in[2]));
  }
  return Add(std::move(node));
}

int ModelBuilder::Convolution(int from, const std::string& name, int64_t out,
                              const Window& window, const Affine& affine) {
  const auto first = static_cast<int>(model_.parameters.size());
  AddParameter(name + ".weight",
               {out, shape(from)[0], window.rows, window.cols}, affine.weight);
  if (affine.has_bias) AddParameter(name + ".bias", {out}, {});
  return AddWindowed({.op = Op::kConvolution,
                      .inputs = {from},
                      .parameter = first,
                      .num_parameters = affine.has_bias ? 2 : 1,
                      .window = window},
                     name, out);
}

int ModelBuilder::Dense(int from, const std::string& name, int64_t out,
                        Fill weight) {
  const auto first = static_cast<int>(model_.parameters.size());
  std::vector<int64_t> result = shape(from);
  AddParameter(name + ".weight", {out, result.back()}, weight);
  AddParameter(name + ".bias", {out}, {});
  result.back() = out;
  return Add({.op = Op::kDense,
              .inputs = {from},
              .shape = std::move(result),
              .parameter = first,
              .num_parameters = 2});
}

int ModelBuilder::BatchNorm(int from, const std::string& name, bool has_gamma) {
  const int64_t channels = shape(from)[0];
  const auto first = static_cast<int>(model_.parameters.size());
  if (has_gamma) AddParameter(name + ".weight", {channels}, Constant(1));
  AddParameter(name + ".bias", {channels}, {});
  const auto buffer = static_cast<int>(model_.buffers.size());
  model_.buffers.push_back({name + ".mean", {channels}, {}});
  model_.buffers.push_back({name + ".variance", {channels}, Constant(1)});
  return Add({.op = Op::kBatchNorm,
              .inputs = {from},
              .parameter = first,
              .num_parameters = has_gamma ? 2 : 1,
              .buffer = buffer});
}

int ModelBuilder::LayerNorm(int from, const std::string& name) {
  const auto first = static_cast<int>(model_.parameters.size());
  AddParameter(name + ".weight", {shape(from).back()}, Constant(1));
  AddParameter(name + ".bias", {shape(from).back()}, {});
  return Add({.op = Op::kLayerNorm,
              .inputs = {from},
              .parameter = first,
              .num_parameters = 2});
}

int ModelBuilder::Dropout(int from, float rate) {
  return Add({.op = Op::kDropout, .inputs = {from}, .rate = rate});
}

int ModelBuilder::MaxPool(int from, const Window& window) {
  return AddWindowed({.op = Op::kMaxPool, .inputs = {from}, .window = window},
                     "a pool", shape(from)[0]);
}

int ModelBuilder::AveragePool(int from, const Window& window) {
  return AddWindowed(
      {.op = Op::kAveragePool, .inputs = {from}, .window = window}, "a pool",
      shape(from)[0]);
}

int ModelBuilder::SpatialMean(int from) {
  return Add(
      {.op = Op::kSpatialMean, .inputs = {from}, .shape = {shape(from)[0]}});
}

int ModelBuilder::Flatten(int from) {
  return Add(
      {.op = Op::kFlatten, .inputs = {from}, .shape = {Product(shape(from))}});
}

int ModelBuilder::Concat(const std::vector<int>& from) {
  std::vector<int64_t> result = shape(from[0]);
  for (size_t i = 1; i < from.size(); ++i) result[0] += shape(from[i])[0];
  return Add({.op = Op::kConcat, .inputs = from, .shape = std::move(result)});
}

int ModelBuilder::Embedding(int from, const std::string& name, int64_t tokens,
                            int64_t width) {
  const auto first = static_cast<int>(model_.parameters.size());
  AddParameter(name + ".weight", {tokens, width}, Normal(0.02f));
  return Add({.op = Op::kEmbedding,
              .inputs = {from},
              .shape = {shape(from)[0], width},
              .parameter = first,
              .num_parameters = 1});
}

int ModelBuilder::Positions(int from, const std::string& name) {
  const auto first = static_cast<int>(model_.parameters.size());
  AddParameter(name + ".weight", shape(from), Normal(0.02f));
  return Add({.op = Op::kPositions,
              .inputs = {from},
              .parameter = first,
              .num_parameters = 1});
}

int ModelBuilder::Attention(int from, int64_t num_heads) {
  return Add({.op = Op::kAttention,
              .inputs = {from},
              .shape = {shape(from)[0], shape(from)[1] / 3},
              .num_heads = num_heads});
}

int ModelBuilder::Classes(int from, const std::string& name) {
  return Dense(from, name, spec_.num_classes,
               XavierUniform(shape(from).back(), spec_.num_classes));
}

absl::StatusOr<Model> ModelBuilder::Build(int logits, int auxiliary,
                                          float auxiliary_weight) {
  if (!status_.ok()) return status_;
  model_.logits = logits;
  model_.auxiliary = auxiliary;
  model_.auxiliary_weight = auxiliary_weight;
  for (const Node& node : model_.nodes) {
    const auto at = &node - model_.nodes.data();
    if (node.op != Op::kConvolution && node.op != Op::kDense) continue;
    model_.parameters[static_cast<size_t>(node.parameter)].is_hidden =
        at != logits && at != auxiliary;
  }
  std::vector<int> last_reader(model_.nodes.size(), -1);
  for (size_t i = 0; i < model_.nodes.size(); ++i) {
    for (const int input : model_.nodes[i].inputs) {
      last_reader[static_cast<size_t>(input)] = static_cast<int>(i);
    }
  }
  for (size_t i = 0; i < last_reader.size(); ++i) {
    if (last_reader[i] < 0) continue;
    model_.nodes[static_cast<size_t>(last_reader[i])].ends_here.push_back(
        static_cast<int>(i));
  }
  return std::move(model_);
}

}  // namespace telegrad
