#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/device.h"
#include "base/dtype.h"
#include "base/stream.h"

namespace telegrad {

// One parameter tensor. `weight` and `grad` stay where they are for the life of
// the network; both are contiguous float32 on the network's device.
struct Parameter {
  std::string name;  // "fc1.weight"
  std::vector<int64_t> shape;
  size_t num_elements = 0;
  float* weight = nullptr;
  float* grad = nullptr;  // null for a buffer
  // What a dense layer or a convolution multiplies by, unless it gives classes.
  bool is_hidden = false;
};

// A step by Muon (Jordan, 2024) of a weight as a matrix [shape[0], the rest].
struct MuonStep {
  float rescale = 1;  // the gradient counts so often
  float momentum = 0;
  float rate = 0;
  float keep = 1;  // the share of the weight that stays
};

struct BatchResult {
  double loss_sum = 0;  // over the predictions, natural-log cross entropy
  int64_t num_correct = 0;
  int64_t num_samples = 0;  // predictions: of text, one per token
};

// A model under training. One thread.
class Network {
 public:
  // What a step calls with the index of a parameter, if anything, and what else
  // it is told.
  struct Hooks {
    // In forward, before its weight is first read, from the caller's thread:
    // the weight may still be changed then.
    std::function<void(size_t index)> weight_needed = nullptr;
    // In backward, as soon as its gradient is complete, from the thread that
    // runs backward.
    std::function<void(size_t index)> gradient_ready = nullptr;
    // Equal draws of equal seeds drop the same units out.
    uint64_t draw = 0;
    // Gradients are added to those before, and count this share of their sum.
    bool accumulates = false;
    float share = 1.0f;
  };

  virtual ~Network() = default;
  virtual const std::vector<Parameter>& parameters()
      const = 0;  // forward order
  // Statistics that training gathers and evaluation reads: means and variances
  // of batch normalisation. Not learned; each network has its own.
  virtual const std::vector<Parameter>& buffers() const = 0;

  // Gradients of the mean loss over the batch replace those before, which are
  // left alone until all weights were needed. images [n, c, r, c] f32, labels
  // [n]; or token ids [n, context] f32 and what follows each, [n, context].
  virtual BatchResult ForwardBackward(const float* images,
                                      const int64_t* labels, int64_t n,
                                      const Hooks& hooks) = 0;
  virtual BatchResult Evaluate(const float* images, const int64_t* labels,
                               int64_t n) = 0;
  // Multiplies all gradients; whether all are finite then. Waits.
  virtual bool ScaleGradients(float factor) = 0;
  // The gradient as a whole to an L2 norm of at most `most`; one that is not
  // finite stays as it is. Waits for nothing.
  virtual void ClipGradients(float most) = 0;

  // m = momentum m + g, of a gradient g that is rescaled; then keep times the
  // weight, and `rate` times 0.2 sqrt(the longer side) times the polar factor
  // of g + momentum m off it. `m`: of the network's device.
  virtual void StepByMuon(size_t, const MuonStep&, float* /*m*/) {}

  // Where it computes, and behind what; on a CPU nothing is queued. On another
  // device ForwardBackward keeps its results there until TakeResults, which
  // waits: the sum of what it did since.
  virtual Device device() const { return {}; }
  virtual Stream stream() const { return {}; }
  virtual BatchResult TakeResults() { return {}; }
  // What the device said first; then results mean nothing.
  virtual absl::Status status() const { return absl::OkStatus(); }
  // Memory [n] f32 of its device to the host, and back; both wait. status()
  // tells whether they could.
  virtual void Read(const float* from, size_t n, float* to) {
    std::copy_n(from, n, to);
  }
  virtual void Write(const float* from, size_t n, float* to) {
    std::copy_n(from, n, to);
  }
};

// Images of fewer rows get the form for CIFAR, of networks that have one.
inline constexpr int kSmallImageSide = 64;

struct NetworkSpec {
  std::string name =
      "lenet";  // a line of the table in trainer/networks/registry.cc
  int channels = 1;
  int rows = 28;
  int cols = 28;
  int context = 0;  // > 0: text of so many tokens in place of images
  int num_classes = 10;
  uint64_t seed = 0;  // the initial weights': equal seeds, equal bits
  float label_smoothing = 0.0f;  // share that all classes get alike
  // The type of the factors and results of products; weights, gradients,
  // normalisation and loss are float32. A CPU has float16 as float32 that is
  // rounded.
  Dtype dtype = Dtype::kFloat32;
  // Where it computes. Initial weights are the same bits everywhere.
  Device device = {};
};

// What `name` is made for: the input of its paper, as a spec. NotFound lists
// the networks.
absl::StatusOr<NetworkSpec> DefaultSpec(absl::string_view name);

// What a network learns, before there is one: names and sizes, forward order.
struct NetworkShape {
  std::vector<Parameter> parameters;  // without memory
  std::vector<Parameter> buffers;
  int64_t least_batch = 1;  // the least that can be normalised
};

// NotFound lists the networks; InvalidArgument when the input does not fit.
absl::StatusOr<NetworkShape> ShapeOf(const NetworkSpec& spec);

// A --gc-rule that sends tensors of one dimension dense, by their names in all
// networks: biases, and the weights of normalisation.
inline constexpr char kOneDimension[] =
    "(\\.bias|bn[0-9]+\\.weight|norm[0-9]*\\.weight)$=none";

// "resnet" with 50 layers is "resnet50", as MXNet's --num-layers has it; 0: as
// it is. InvalidArgument names the numbers of layers that there are.
absl::StatusOr<std::string> NetworkOfDepth(absl::string_view family,
                                           int num_layers);

// The lines of --help: one per network.
std::string DescribeNetworks();

}  // namespace telegrad
