#pragma once

#include <span>
#include <vector>

#include "absl/status/status.h"
#include "kvstore/kvstore.h"
#include "trainer/gradient_exchange.h"

namespace telegrad {

// Steps that devices take alone, and what brings them together: after some of
// them the change of the weights goes through the store like a gradient, and
// its mean is the gradient of an outer optimizer, which all run alike. Local
// SGD (Stich, ICLR 2019) with a rate of 1 and no momentum, else DiLoCo
// (Douillard et al., 2023). One thread.
class LocalSteps {
 public:
  struct Outer {
    float learning_rate = 1;
    float momentum = 0;  // Nesterov's
    int num_contributors = 1;
  };
  // Of `replicas`, which have the same weights now, and states for all of them.
  LocalSteps(KVStore& store, std::span<Replica> replicas, const Outer& outer,
             Duration timeout);

  // Each device steps its weights with its own gradient. `inner` has no
  // rescaling.
  void Step(const OptimizerConfig& inner,
            std::span<const RateMultipliers> rates);
  // All devices of all workers get the same weights. DeadlineExceeded names
  // what is missing.
  absl::Status Exchange();

  // Of tensor `index`, for a checkpoint: the weights that all had after the
  // last exchange, and what the outer optimizer keeps.
  struct Anchor {
    Bytes weights;
    OptimizerState& outer;
  };
  Anchor anchor(size_t index) {
    return {tensors_[index].weights.view(), tensors_[index].outer};
  }

  // Seconds of waiting since this was last asked.
  double TakeWait();

 private:
  struct Tensor {
    Buffer weights;               // that all had after the last exchange
    std::vector<Buffer> changes;  // by device
    OptimizerState outer;
  };
  Ticket Push(size_t index);
  void Finish(size_t index);

  KVStore& store_;
  const std::span<Replica> replicas_;
  const OptimizerConfig outer_;
  const Duration timeout_;
  std::vector<Tensor> tensors_;
  double wait_ = 0;
};

}  // namespace telegrad
