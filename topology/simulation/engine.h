#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "topology/cost_model.h"
#include "topology/simulate.h"

namespace telegrad {

// What the engine plays: tensors in forward order.
struct Play {
  struct Tensor {
    const Pipeline* pipeline = nullptr;
    int64_t elems = 0;
    int64_t chunk_elems = 0;
    size_t layer = 0;
  };
  std::vector<Tensor> tensors = {};
  std::vector<double> layers = {};  // shares of either pass; their sum is 1
  double forward_s = 0;             // seconds of all layers
  double backward_s = 0;
  Overlap overlap = Overlap::kFull;
  bool first_layers_first = true;
};

struct Played {
  double step_s = 0;  // from one forward to the next, when that has settled
  std::array<double, kNumResources> busy_s{};  // in a step
};

Played PlaySteps(const Play& play);

}  // namespace telegrad
