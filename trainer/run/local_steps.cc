#include "trainer/run/local_steps.h"

#include <utility>

#include "base/status_macros.h"
#include "kvstore/tuning/turns.h"
#include "trainer/run/device_room.h"
#include "trainer/run/replica_steps.h"

namespace telegrad {

LocalSteps::LocalSteps(KVStore& store, std::span<Replica> replicas,
                       const Outer& outer, Duration timeout)
    : store_(store),
      replicas_(replicas),
      outer_{.kind = OptimizerKind::kNag,
             .sgd = {.learning_rate = outer.learning_rate,
                     .momentum_rate = outer.momentum,
                     .rescale =
                         1.0f / static_cast<float>(outer.num_contributors)}},
      num_steps_(outer.num_steps),
      num_fragments_(outer.num_fragments),
      timeout_(timeout),
      tensors_(replicas[0].network->parameters().size()) {}

LocalSteps::Outer LocalSteps::OuterOf(const TrainOptions& options,
                                      const CompressionConfig& compression,
                                      int num_contributors) {
  const bool has_none = compression.momentum != PushMomentum::kNone;
  return {.learning_rate = options.outer_lr,
          .momentum = has_none ? 0 : options.outer_mom,
          .num_contributors = num_contributors,
          .num_steps = options.local_steps,
          .num_fragments = options.local_fragments};
}

LocalSteps::~LocalSteps() {
  for (const Tensor& tensor : tensors_) {
    if (tensor.running.has_value()) tensor.running->Cancel();
  }
}

absl::Status LocalSteps::Init() {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    RETURN_IF_ERROR(InitTensor(i));
  }
  DealTurns();
  return absl::OkStatus();
}

absl::Status LocalSteps::InitTensor(size_t index) {
  Tensor& tensor = tensors_[index];
  const Network& first = *replicas_[0].network;
  const Parameter& parameter = first.parameters()[index];
  const size_t n = parameter.num_elements;
  ASSIGN_OR_RETURN(tensor.weights, MakeRoom(first, 4 * n));
  CopyOn(first, parameter.weight, n, tensor.weights.as<float>());
  ASSIGN_OR_RETURN(tensor.outer, MakeState(first, n, outer_.kind));
  for (const Replica& replica : replicas_) {
    ASSIGN_OR_RETURN(tensor.changes.emplace_back(),
                     MakeRoom(*replica.network, 4 * n));
    if (num_fragments_ == 1) continue;
    ASSIGN_OR_RETURN(tensor.pushed.emplace_back(),
                     MakeRoom(*replica.network, 4 * n));
  }
  return absl::OkStatus();
}

void LocalSteps::DealTurns() {
  std::vector<uint64_t> sizes;
  for (const Tensor& tensor : tensors_) sizes.push_back(tensor.weights.size());
  const std::vector<int64_t> turns = TurnsOf(sizes, num_steps_, num_fragments_);
  for (size_t i = 0; i < turns.size(); ++i) tensors_[i].turn = turns[i];
}

absl::Status LocalSteps::Step(const OptimizerConfig& inner,
                              std::span<const RateMultipliers> rates) {
  for (Replica& replica : replicas_) {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      StepTensor(replica, i, inner, rates[i]);
    }
    RETURN_IF_ERROR(LaunchStatus(replica.network->device()));
  }
  return absl::OkStatus();
}

// What an outer step with a rate of 1 takes off the weights.
void LocalSteps::Begin(size_t index) {
  Tensor& tensor = tensors_[index];
  std::vector<TensorView> views;
  for (size_t device = 0; device < replicas_.size(); ++device) {
    const Network& network = *replicas_[device].network;
    const Parameter& parameter = network.parameters()[index];
    const size_t n = parameter.num_elements;
    auto* const change = tensor.changes[device].as<float>();
    CopyOn(network, parameter.weight, n, change);
    SubtractOn(network, tensor.weights.as<float>(), n, change);
    if (num_fragments_ > 1) {
      CopyOn(network, parameter.weight, n, tensor.pushed[device].as<float>());
    }
    views.push_back(ViewOf(network, change, n));
  }
  tensor.running = store_.PushPull(static_cast<Key>(index), views, views,
                                   -static_cast<int>(index));
}

// Keeps what has changed since Begin, where steps may have been taken.
void LocalSteps::Finish(size_t index) {
  Tensor& tensor = tensors_[index];
  const size_t n = tensor.weights.size() / 4;
  auto* const weights = tensor.weights.as<float>();
  StepOn(*replicas_[0].network, outer_, {}, tensor.changes[0].as<float>(), n,
         weights, tensor.outer);
  for (size_t device = 0; device < replicas_.size(); ++device) {
    const Network& network = *replicas_[device].network;
    float* const own = network.parameters()[index].weight;
    if (num_fragments_ == 1) {
      CopyOn(network, weights, n, own);
      continue;
    }
    auto* const pushed = tensor.pushed[device].as<float>();
    SubtractOn(network, own, n, pushed);
    CopyOn(network, weights, n, own);
    AddOn(network, pushed, n, own);
  }
}

absl::Status LocalSteps::FinishBegun() {
  const TimePoint start = Clock::now();
  absl::Status status;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const std::optional<Ticket> running =
        std::exchange(tensors_[i].running, std::nullopt);
    if (!running.has_value()) continue;
    if (!status.ok()) {
      running->Cancel();
      continue;
    }
    status = running->Wait(start + timeout_);
    if (status.ok()) Finish(i);
  }
  status.Update(LaunchStatus(replicas_[0].network->device()));
  wait_ += SecondsSince(start);
  return status;
}

absl::Status LocalSteps::AfterStep(int64_t step) {
  const int64_t turn = step % num_steps_;
  if (num_fragments_ == 1) return turn == 0 ? Exchange() : absl::OkStatus();
  std::vector<size_t> due;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (tensors_[i].turn == turn) due.push_back(i);
  }
  if (due.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(FinishBegun());
  for (const size_t i : due) Begin(i);
  return absl::OkStatus();
}

absl::Status LocalSteps::Exchange() {
  RETURN_IF_ERROR(FinishBegun());
  for (size_t i = 0; i < tensors_.size(); ++i) Begin(i);
  return FinishBegun();
}

double LocalSteps::TakeWait() { return std::exchange(wait_, 0); }

}  // namespace telegrad
