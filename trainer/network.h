#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace telegrad {

// One parameter tensor. `weight` and `grad` stay where they are for the life of
// the network; both are contiguous float32 on the CPU.
struct Parameter {
  std::string name;  // "fc1.weight"
  std::vector<int64_t> shape;
  size_t num_elements = 0;
  float* weight = nullptr;
  float* grad = nullptr;
};

struct BatchResult {
  double loss_sum = 0;  // over the samples, natural-log cross entropy
  int64_t num_correct = 0;
  int64_t num_samples = 0;
};

// A model under training. One thread.
class Network {
 public:
  // What a step calls with the index of a parameter, if anything.
  struct Hooks {
    // In forward, before its weight is first read, from the caller's thread:
    // the weight may still be changed then.
    std::function<void(size_t index)> weight_needed = nullptr;
    // In backward, as soon as its gradient is complete, from the thread that
    // runs backward.
    std::function<void(size_t index)> gradient_ready = nullptr;
  };

  virtual ~Network() = default;
  virtual const std::vector<Parameter>& parameters()
      const = 0;  // forward order

  // Gradients of the mean loss over the batch replace those before, which are
  // left alone until all weights were needed. images [n, c, r, c] f32, labels
  // [n].
  virtual BatchResult ForwardBackward(const float* images,
                                      const int64_t* labels, int64_t n,
                                      const Hooks& hooks) = 0;
  virtual BatchResult Evaluate(const float* images, const int64_t* labels,
                               int64_t n) = 0;
};

struct NetworkSpec {
  std::string name = "lenet";  // a line of the table in trainer/registry.cc
  int channels = 1;
  int rows = 28;
  int cols = 28;
  int num_classes = 10;
  uint64_t seed = 0;  // of the initial weights: equal seeds, equal bits
};

// NotFound lists the networks; InvalidArgument when the input does not fit.
absl::StatusOr<std::unique_ptr<Network>> MakeNetwork(const NetworkSpec& spec);

// The lines of --help: one per network.
std::string DescribeNetworks();

// Fixes the number of threads of the framework and makes it deterministic.
// Call once per process, before MakeNetwork.
void ConfigureFramework(int num_threads);

}  // namespace telegrad
