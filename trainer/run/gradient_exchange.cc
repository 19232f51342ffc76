#include "trainer/run/gradient_exchange.h"

#include <optional>
#include <utility>

#include "base/status_macros.h"
#include "kernels/device_scope.h"
#include "trainer/run/device_room.h"
#include "trainer/run/replica_steps.h"

namespace telegrad {

GradientExchange::GradientExchange(KVStore& store, std::span<Replica> replicas,
                                   Duration timeout, StepTimeline* timeline)
    : store_(store),
      replicas_(replicas),
      timeout_(timeout),
      timeline_(timeline),
      rates_(replicas[0].network->parameters().size()),
      tickets_(rates_.size()),
      is_pending_(tickets_.size()),
      steps_(tickets_.size()) {}

GradientExchange::~GradientExchange() {
  for (size_t i = 0; i < tickets_.size(); ++i) {
    if (is_pending_[i]) tickets_[i].Cancel();
  }
}

void GradientExchange::Prepare(const Replica& replica, size_t index) {
  if (replica.states.empty()) return;
  const OptimizerState& state = replica.states[index];
  const bool is_frozen = IsFrozen(state);
  const bool is_normal = normalizes_ && !IsMuons(replica, index);
  if (!is_frozen && !is_normal) return;
  const Network& network = *replica.network;
  const Parameter& parameter = network.parameters()[index];
  const size_t n = parameter.num_elements;
  const kernels::DeviceScope scope(network.device());
  float* const grad = Reached(network, parameter.grad, n);
  const DeviceKind kind = network.device().kind;
  if (is_normal) {
    state.ToNormal(optimizer_, n, grad, network.stream(), kind);
    return;
  }
  state.ToMean(optimizer_, rates_[index], Reached(network, parameter.weight, n),
               n, grad, network.stream(), kind);
}

void GradientExchange::Push(size_t index, int priority) {
  if (num_pending_ == 0) clock_.StartStep();
  clock_.Push(Clock::now());
  std::vector<TensorView> grads;
  std::vector<TensorView> outs;
  for (const Replica& replica : replicas_) {
    const Parameter& parameter = replica.network->parameters()[index];
    const size_t n = parameter.num_elements;
    Prepare(replica, index);
    grads.push_back(ViewOf(*replica.network, parameter.grad, n));
    outs.push_back(
        replica.pulled.empty()
            ? grads.back()
            : ViewOf(*replica.network, replica.pulled[index].as<float>(), n));
  }
  tickets_[index] =
      store_.PushPull(static_cast<Key>(index), grads, outs, priority);
  is_pending_[index] = true;
  steps_[index] = optimizer_;
  ++num_pending_;
  tickets_[index].NotifyTo(done_, index);
}

absl::Status GradientExchange::Finish(size_t index) {
  if (!is_pending_[index]) return absl::OkStatus();
  RETURN_IF_ERROR(FinishArrived());
  const TimePoint start = Clock::now();
  absl::Status status;
  while (is_pending_[index] && status.ok()) {
    const std::optional<uint64_t> next = done_.Next(start + timeout_);
    // One that is late is told by its own ticket, which cancels it.
    status = next.has_value() ? Step(static_cast<size_t>(*next))
                              : tickets_[index].Wait(start + timeout_);
  }
  wait_ += SecondsSince(start);
  if (timeline_ != nullptr) timeline_->Note("wait", start);
  return status;
}

absl::Status GradientExchange::FinishArrived() {
  while (const std::optional<uint64_t> next = done_.Next(TimePoint())) {
    RETURN_IF_ERROR(Step(static_cast<size_t>(*next)));
  }
  return absl::OkStatus();
}

absl::Status GradientExchange::FinishAll() {
  for (size_t i = 0; i < tickets_.size(); ++i) RETURN_IF_ERROR(Finish(i));
  return absl::OkStatus();
}

void GradientExchange::StepReplica(Replica& replica, size_t index) {
  const Parameter& parameter = replica.network->parameters()[index];
  const Network& network = *replica.network;
  const size_t n = parameter.num_elements;
  if (!replica.pulled.empty()) {
    CopyOn(network, replica.pulled[index].as<float>(), n, parameter.weight);
    return;
  }
  OptimizerState& state = replica.states[index];
  const bool is_frozen = IsFrozen(state);
  if (!is_frozen && (!normalizes_ || IsMuons(replica, index))) {
    StepTensor(replica, index, steps_[index], rates_[index]);
    return;
  }
  const kernels::DeviceScope scope(network.device());
  const float* const sum = Reached(network, parameter.grad, n);
  float* const weight = Reached(network, parameter.weight, n);
  const DeviceKind kind = network.device().kind;
  if (is_frozen) {
    state.StepByMean(steps_[index], rates_[index], frozen_after_, sum, n,
                     weight, network.stream(), kind);
  } else {
    state.StepByNormal(steps_[index], rates_[index], sum, n, weight,
                       network.stream(), kind);
  }
}

absl::Status GradientExchange::Step(size_t index) {
  RETURN_IF_ERROR(tickets_[index].Wait(Clock::now() + timeout_));
  is_pending_[index] = false;
  if (--num_pending_ == 0) {
    exchange_seconds_ = clock_.SecondsUntil(Clock::now());
  }
  const TimePoint start = Clock::now();
  for (Replica& replica : replicas_) {
    StepReplica(replica, index);
    RETURN_IF_ERROR(LaunchStatus(replica.network->device()));
  }
  if (timeline_ != nullptr) {
    timeline_->Note("apply", start, static_cast<Key>(index));
  }
  return absl::OkStatus();
}

absl::Status GradientExchange::PullWeights() {
  RETURN_IF_ERROR(store_.group().Gather("pushed", "").status());
  const TimePoint deadline = Clock::now() + timeout_;
  for (size_t i = 0; i < tickets_.size(); ++i) {
    std::vector<TensorView> views;
    for (const Replica& replica : replicas_) {
      const Parameter& parameter = replica.network->parameters()[i];
      views.push_back(
          ViewOf(*replica.network, parameter.weight, parameter.num_elements));
    }
    RETURN_IF_ERROR(store_.Pull(static_cast<Key>(i), views, 0).Wait(deadline));
  }
  // Nobody pushes before all have them.
  return store_.group().Gather("pulled", "").status();
}

double GradientExchange::TakeWait() { return std::exchange(wait_, 0); }

}  // namespace telegrad
