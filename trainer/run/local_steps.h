#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "kvstore/kvstore.h"
#include "trainer/flags/options.h"
#include "trainer/run/gradient_exchange.h"

namespace telegrad {

// Steps that devices take alone, and what brings them together: after some of
// them the change of the weights goes through the store like a gradient, and
// its mean is the gradient of an outer optimizer, which all run alike. Local
// SGD (Stich, ICLR 2019) with a rate of 1 and no momentum, else DiLoCo
// (Douillard et al., 2023). In fragments, tensors take turns, and each exchange
// runs beside the steps until the next turn (streaming DiLoCo, Douillard et
// al., 2025); what these change is kept. One thread.
class LocalSteps {
 public:
  struct Outer {
    float learning_rate = 1;
    float momentum = 0;  // Nesterov's
    int num_contributors = 1;
    int num_steps = 1;      // between two exchanges of a tensor
    int num_fragments = 1;  // at most num_steps
  };
  // As the flags have it; with momentum in front of the codec it has none.
  static Outer OuterOf(const TrainOptions& options,
                       const CompressionConfig& compression,
                       int num_contributors);
  // Steps `replicas`, which have states for all their tensors.
  LocalSteps(KVStore& store, std::span<Replica> replicas, const Outer& outer,
             Duration timeout);
  ~LocalSteps();  // cancels what is under way
  // First, with the same weights everywhere. Errors as MakeRoom.
  absl::Status Init();

  // Each device steps its weights with its own gradient. `inner` has no
  // rescaling.
  absl::Status Step(const OptimizerConfig& inner,
                    std::span<const RateMultipliers> rates);
  // After step `step`, counted from 1: what is due. DeadlineExceeded names what
  // is missing, here and below.
  absl::Status AfterStep(int64_t step);
  // All devices of all workers get the same weights.
  absl::Status Exchange();
  // Ends what AfterStep has begun.
  absl::Status FinishBegun();

  // What a checkpoint keeps of tensor `index`: the weights that all had after
  // the last exchange, and what the outer optimizer keeps.
  struct Anchor {
    float* weights;  // the first device's
    OptimizerState& outer;
  };
  Anchor anchor(size_t index) {
    return {tensors_[index].weights.as<float>(), tensors_[index].outer};
  }

  // Seconds of waiting since this was last asked.
  double TakeWait();

 private:
  struct Tensor {
    Buffer weights;  // the weights that all had after the last exchange
    std::vector<Buffer> changes;  // by device
    std::vector<Buffer> pushed;   // the weights that the changes led to
    OptimizerState outer;
    int64_t turn = 0;  // the step, of num_steps_, after which it begins
    std::optional<Ticket> running = std::nullopt;
  };
  absl::Status InitTensor(size_t index);
  void DealTurns();
  void Begin(size_t index);
  void Finish(size_t index);

  KVStore& store_;
  const std::span<Replica> replicas_;
  const OptimizerConfig outer_;
  const int num_steps_;
  const int num_fragments_;
  const Duration timeout_;
  std::vector<Tensor> tensors_;
  double wait_ = 0;
};

}  // namespace telegrad
