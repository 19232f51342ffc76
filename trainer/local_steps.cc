#include "trainer/local_steps.h"

#include <algorithm>
#include <utility>

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
      timeout_(timeout) {
  for (const Parameter& parameter : replicas[0].network->parameters()) {
    Tensor& tensor = tensors_.emplace_back();
    tensor.weights = Buffer(4 * parameter.num_elements);
    std::copy_n(parameter.weight, parameter.num_elements,
                tensor.weights.as<float>());
    for (size_t i = 0; i < replicas.size(); ++i) {
      tensor.changes.emplace_back(4 * parameter.num_elements);
    }
  }
}

void LocalSteps::Step(const OptimizerConfig& inner,
                      std::span<const RateMultipliers> rates) {
  for (size_t device = 0; device < replicas_.size(); ++device) {
    const auto& parameters = replicas_[device].network->parameters();
    for (size_t i = 0; i < tensors_.size(); ++i) {
      replicas_[device].states[i].Step(inner, rates[i], parameters[i].grad,
                                       parameters[i].num_elements,
                                       parameters[i].weight, {});
    }
  }
}

// What an outer step with a rate of 1 takes off the weights.
Ticket LocalSteps::Push(size_t index) {
  Tensor& tensor = tensors_[index];
  std::vector<TensorView> views;
  for (size_t device = 0; device < replicas_.size(); ++device) {
    const Parameter& parameter = replicas_[device].network->parameters()[index];
    auto* const change = tensor.changes[device].as<float>();
    const auto* const before = tensor.weights.as<float>();
    for (size_t i = 0; i < parameter.num_elements; ++i) {
      change[i] = before[i] - parameter.weight[i];
    }
    views.push_back(FloatTensor(tensor.changes[device].view()));
  }
  return store_.PushPull(static_cast<Key>(index), views, views,
                         -static_cast<int>(index));
}

void LocalSteps::Finish(size_t index) {
  Tensor& tensor = tensors_[index];
  const size_t n = tensor.weights.size() / 4;
  auto* const weights = tensor.weights.as<float>();
  tensor.outer.Step(outer_, {}, tensor.changes[0].as<float>(), n, weights, {});
  for (Replica& replica : replicas_) {
    std::copy_n(weights, n, replica.network->parameters()[index].weight);
  }
}

absl::Status LocalSteps::Exchange() {
  const TimePoint start = Clock::now();
  std::vector<Ticket> tickets;
  for (size_t i = 0; i < tensors_.size(); ++i) tickets.push_back(Push(i));
  absl::Status status;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (!status.ok()) {
      tickets[i].Cancel();
      continue;
    }
    status = tickets[i].Wait(start + timeout_);
    if (status.ok()) Finish(i);
  }
  wait_ += SecondsSince(start);
  return status;
}

double LocalSteps::TakeWait() { return std::exchange(wait_, 0); }

}  // namespace telegrad
