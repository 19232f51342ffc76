#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "trainer/run/gradient_exchange.h"

namespace telegrad::testing {

constexpr size_t kCount = 33;

// Weights of 10 and gradients of 1.
class TwoTensors : public Network {
 public:
  explicit TwoTensors(size_t last_count = kCount) {
    for (const size_t count : {kCount, last_count}) {
      parameters_.push_back({.name = parameters_.empty() ? "first" : "last",
                             .shape = {static_cast<int64_t>(count)},
                             .num_elements = count,
                             .weight = Filled(count, 10),
                             .grad = Filled(count, 1)});
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
  float* Filled(size_t count, float value) {
    auto* const floats = memory_.emplace_back(4 * count).as<float>();
    std::fill_n(floats, count, value);
    return floats;
  }

  std::vector<Buffer> memory_;
  std::vector<Parameter> parameters_;
  std::vector<Parameter> buffers_;  // none
};

inline std::vector<Replica> OneReplica(size_t last_count = kCount) {
  std::vector<Replica> replicas(1);
  replicas[0].network = std::make_unique<TwoTensors>(last_count);
  replicas[0].states.resize(2);
  return replicas;
}

}  // namespace telegrad::testing
