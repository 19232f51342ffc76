#include "trainer/local_steps.h"

#include <algorithm>
#include <utility>

#include "base/status_macros.h"

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
      timeout_(timeout) {
  for (const Parameter& parameter : replicas[0].network->parameters()) {
    Tensor& tensor = tensors_.emplace_back();
    const size_t bytes = 4 * parameter.num_elements;
    tensor.weights = Buffer(bytes);
    std::copy_n(parameter.weight, parameter.num_elements,
                tensor.weights.as<float>());
    for (size_t i = 0; i < replicas.size(); ++i) {
      tensor.changes.emplace_back(bytes);
      if (num_fragments_ > 1) tensor.pushed.emplace_back(bytes);
    }
  }
  DealTurns();
}

LocalSteps::~LocalSteps() {
  for (const Tensor& tensor : tensors_) {
    if (tensor.running.has_value()) tensor.running->Cancel();
  }
}

// A fragment is neighbours, of about as many bytes as others.
void LocalSteps::DealTurns() {
  size_t total = 0;
  for (const Tensor& tensor : tensors_) total += tensor.weights.size();
  const auto count = static_cast<size_t>(num_fragments_);
  size_t before = 0;
  for (Tensor& tensor : tensors_) {
    const size_t middle = before + tensor.weights.size() / 2;
    const size_t fragment = std::min(middle * count / total, count - 1);
    tensor.turn = static_cast<int64_t>(fragment) * num_steps_ / num_fragments_;
    before += tensor.weights.size();
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
void LocalSteps::Begin(size_t index) {
  Tensor& tensor = tensors_[index];
  std::vector<TensorView> views;
  for (size_t device = 0; device < replicas_.size(); ++device) {
    const Parameter& parameter = replicas_[device].network->parameters()[index];
    auto* const change = tensor.changes[device].as<float>();
    const auto* const before = tensor.weights.as<float>();
    for (size_t i = 0; i < parameter.num_elements; ++i) {
      change[i] = before[i] - parameter.weight[i];
    }
    if (num_fragments_ > 1) {
      std::copy_n(parameter.weight, parameter.num_elements,
                  tensor.pushed[device].as<float>());
    }
    views.push_back(FloatTensor(tensor.changes[device].view()));
  }
  tensor.running = store_.PushPull(static_cast<Key>(index), views, views,
                                   -static_cast<int>(index));
}

// Keeps what has changed since Begin, where steps may have been taken.
void LocalSteps::Finish(size_t index) {
  Tensor& tensor = tensors_[index];
  const size_t n = tensor.weights.size() / 4;
  auto* const weights = tensor.weights.as<float>();
  tensor.outer.Step(outer_, {}, tensor.changes[0].as<float>(), n, weights, {});
  for (size_t device = 0; device < replicas_.size(); ++device) {
    float* const own = replicas_[device].network->parameters()[index].weight;
    if (num_fragments_ == 1) {
      std::copy_n(weights, n, own);
      continue;
    }
    const auto* const pushed = tensor.pushed[device].as<float>();
    for (size_t i = 0; i < n; ++i) own[i] = weights[i] + (own[i] - pushed[i]);
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
