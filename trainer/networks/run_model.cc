#include "trainer/networks/run_model.h"

#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/random.h"

namespace telegrad {
namespace {

using torch::Tensor;

// Keeps what drops out apart from what else is drawn from the same seed.
constexpr uint64_t kDropoutStream = uint64_t{0x64726f70} << 32;  // "drop"

// Shares of old and new in running statistics, and what keeps a variance from
// zero, of normalisation.
constexpr double kNewShare = 0.1;
constexpr double kEpsilon = 1e-5;

Tensor Wide(const Tensor& x) { return x.to(torch::kFloat32); }

// A factor or a result of a product.
Tensor Narrow(const Tensor& x, const ForwardPass& pass) {
  if (!x.defined()) return x;
  const Tensor narrow = x.to(pass.type);
  return pass.rounds ? Wide(narrow) : narrow;
}

Tensor Multiply(const Tensor& a, const Tensor& b, const ForwardPass& pass) {
  return Narrow(Narrow(a, pass).matmul(Narrow(b, pass)), pass);
}

Tensor Drop(const Tensor& x, const Node& node, size_t index,
            const ForwardPass& pass) {
  if (!pass.is_training) return x;
  const auto key = Philox(pass.seed, pass.draw, kDropoutStream | index);
  Random random(uint64_t{key[1]} << 32 | key[0], kDropoutStream);
  const auto limit =
      static_cast<uint32_t>(static_cast<double>(node.rate) * 0x1.0p32);
  const float kept = 1.0f / (1.0f - node.rate);
  Tensor mask = torch::empty(x.sizes(), torch::kFloat32);
  float* const values = mask.data_ptr<float>();
  for (int64_t i = 0; i < mask.numel(); ++i) {
    values[i] = random.NextU32() < limit ? 0.0f : kept;
  }
  return x * mask.to(x.device());
}

// x [n, t, 3 * width] -> [n, t, width]; position i sees those up to i.
Tensor Attend(const Tensor& x, int64_t num_heads, const ForwardPass& pass) {
  const int64_t n = x.size(0);
  const int64_t length = x.size(1);
  const int64_t width = x.size(2) / 3;
  const int64_t head = width / num_heads;
  const Tensor parts = x.view({n, length, 3, num_heads, head})
                           .permute({2, 0, 3, 1, 4});  // [3, n, h, t, head]
  const double scale = 1.0 / std::sqrt(static_cast<double>(head));
  const Tensor scores =
      Wide(Multiply(parts[0], parts[1].transpose(2, 3), pass)) * scale;
  const Tensor later =
      torch::ones({length, length}, x.options().dtype(torch::kBool))
          .triu(/*diagonal=*/1);
  const Tensor shares =
      scores.masked_fill(later, -std::numeric_limits<float>::infinity())
          .softmax(/*dim=*/3);
  return Multiply(shares, parts[2], pass)
      .transpose(1, 2)
      .reshape({n, length, width});
}

Tensor Windowed(const Tensor& x, const Node& node, const Tensor& weight,
                const Tensor& bias) {
  const Window& w = node.window;
  const std::vector<int64_t> size = {w.rows, w.cols};
  const std::vector<int64_t> stride = {w.stride, w.stride};
  const std::vector<int64_t> pad = {w.pad_rows, w.pad_cols};
  if (node.op == Op::kConvolution) {
    return torch::conv2d(x, weight, bias, stride, pad);
  }
  if (node.op == Op::kMaxPool) return torch::max_pool2d(x, size, stride, pad);
  return torch::avg_pool2d(x, size, stride, pad, /*ceil_mode=*/false,
                           /*count_include_pad=*/false);
}

Tensor Normalise(const Tensor& x, const Node& node, const Tensor& gamma,
                 const Tensor& beta, const ForwardPass& pass) {
  if (node.op == Op::kLayerNorm) {
    return torch::layer_norm(x, {x.size(-1)}, gamma, beta, kEpsilon);
  }
  const auto buffer = static_cast<size_t>(node.buffer);
  return torch::batch_norm(x, gamma, beta, pass.buffers[buffer],
                           pass.buffers[buffer + 1], pass.is_training,
                           kNewShare, kEpsilon, /*cudnn_enabled=*/true);
}

Tensor Run(const Node& node, size_t index, const std::vector<Tensor>& results,
           const ForwardPass& pass) {
  const auto input = [&](size_t i) -> const Tensor& {
    return results[static_cast<size_t>(node.inputs[i])];
  };
  const auto weight = [&](int i) {
    return i < node.num_parameters
               ? pass.weights[static_cast<size_t>(node.parameter + i)]
               : Tensor();
  };
  const Tensor& x = input(0);
  switch (node.op) {
    case Op::kInput:
      break;
    case Op::kConvolution:
    case Op::kDense: {
      const Tensor first = Narrow(weight(0), pass);
      const Tensor bias = Narrow(weight(1), pass);
      const Tensor narrow = Narrow(x, pass);
      return Narrow(node.op == Op::kDense ? torch::linear(narrow, first, bias)
                                          : Windowed(narrow, node, first, bias),
                    pass);
    }
    case Op::kMaxPool:
    case Op::kAveragePool:
      return Windowed(x, node, {}, {});
    case Op::kBatchNorm:
    case Op::kLayerNorm: {
      const bool has_gamma = node.num_parameters == 2;
      const Tensor gamma = has_gamma ? weight(0) : Tensor();
      return Normalise(Wide(x), node, gamma, weight(has_gamma ? 1 : 0), pass);
    }
    case Op::kTanh:
      return torch::tanh(x);
    case Op::kRelu:
      return torch::relu(x);
    case Op::kGelu:
      return torch::gelu(x);
    case Op::kSpatialMean:
      return Wide(x).mean({2, 3});
    case Op::kFlatten:
      return x.flatten(1);
    case Op::kDropout:
      return Drop(x, node, index, pass);
    case Op::kAdd:
      return x + input(1);
    case Op::kConcat: {
      std::vector<Tensor> parts;
      for (size_t i = 0; i < node.inputs.size(); ++i) parts.push_back(input(i));
      return torch::cat(parts, 1);
    }
    case Op::kEmbedding:
      return torch::embedding(weight(0), x.to(torch::kInt64));
    case Op::kPositions:
      return x + weight(0);
    case Op::kAttention:
      return Attend(x, node.num_heads, pass);
  }
  TELEGRAD_CHECK(false, "a node is one of the list");
}

}  // namespace

Logits Forward(const Model& model, const Tensor& input,
               const ForwardPass& pass) {
  std::vector<Tensor> results(model.nodes.size());
  results[0] = input;
  for (size_t i = 1; i < model.nodes.size(); ++i) {
    const Node& node = model.nodes[i];
    results[i] = Run(node, i, results, pass);
    for (const int ended : node.ends_here) {
      results[static_cast<size_t>(ended)] = Tensor();
    }
  }
  Logits logits;
  logits.main = Wide(results[static_cast<size_t>(model.logits)]);
  if (model.auxiliary >= 0) {
    logits.auxiliary = Wide(results[static_cast<size_t>(model.auxiliary)]);
  }
  return logits;
}

}  // namespace telegrad
