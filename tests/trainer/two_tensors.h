#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "trainer/gradient_exchange.h"

namespace telegrad::testing {

constexpr size_t kCount = 33;

// Weights of 10 and gradients of 1.
class TwoTensors : public Network {
 public:
  TwoTensors() {
    for (size_t i = 0; i < 2; ++i) {
      std::fill_n(weights_[i].as<float>(), kCount, 10.0f);
      std::fill_n(grads_[i].as<float>(), kCount, 1.0f);
      parameters_.push_back({.name = i == 0 ? "first" : "last",
                             .shape = {kCount},
                             .num_elements = kCount,
                             .weight = weights_[i].as<float>(),
                             .grad = grads_[i].as<float>()});
    }
  }
  const std::vector<Parameter>& parameters() const override {
    return parameters_;
  }
  const std::vector<Parameter>& buffers() const override { return buffers_; }
  BatchResult ForwardBackward(const float*, const int64_t*, int64_t,
                              const Hooks&) override {
    return {};
  }
  bool ScaleGradients(float) override { return true; }
  void ClipGradients(float) override {}
  BatchResult Evaluate(const float*, const int64_t*, int64_t) override {
    return {};
  }
  float weight(size_t index) const { return parameters_[index].weight[0]; }

 private:
  Buffer weights_[2] = {Buffer(4 * kCount), Buffer(4 * kCount)};
  Buffer grads_[2] = {Buffer(4 * kCount), Buffer(4 * kCount)};
  std::vector<Parameter> parameters_;
  std::vector<Parameter> buffers_;  // none
};

inline std::vector<Replica> OneReplica() {
  std::vector<Replica> replicas(1);
  replicas[0].network = std::make_unique<TwoTensors>();
  replicas[0].states.resize(2);
  return replicas;
}

}  // namespace telegrad::testing
