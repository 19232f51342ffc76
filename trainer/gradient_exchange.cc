#include "trainer/gradient_exchange.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/status_macros.h"

namespace telegrad {

GradientExchange::GradientExchange(KVStore& store, std::span<Replica> replicas,
                                   Duration timeout)
    : store_(store),
      replicas_(replicas),
      timeout_(timeout),
      rates_(replicas[0].network->parameters().size()),
      tickets_(rates_.size()),
      is_pending_(tickets_.size()),
      steps_(tickets_.size()) {}

GradientExchange::~GradientExchange() {
  for (size_t i = 0; i < tickets_.size(); ++i) {
    if (is_pending_[i]) tickets_[i].Cancel();
  }
}

void GradientExchange::Push(size_t index, int priority) {
  if (num_pending_ == 0) clock_.StartStep();
  clock_.Push(Clock::now());
  std::vector<TensorView> grads;
  std::vector<TensorView> outs;
  for (const Replica& replica : replicas_) {
    const Parameter& parameter = replica.network->parameters()[index];
    grads.push_back(FloatTensor({parameter.grad, 4 * parameter.num_elements}));
    outs.push_back(replica.pulled.empty()
                       ? grads.back()
                       : FloatTensor(replica.pulled[index].view()));
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

absl::Status GradientExchange::Step(size_t index) {
  RETURN_IF_ERROR(tickets_[index].Wait(Clock::now() + timeout_));
  is_pending_[index] = false;
  if (--num_pending_ == 0) {
    exchange_seconds_ = clock_.SecondsUntil(Clock::now());
  }
  for (Replica& replica : replicas_) {
    const Parameter& parameter = replica.network->parameters()[index];
    if (!replica.pulled.empty()) {
      std::copy_n(replica.pulled[index].as<float>(), parameter.num_elements,
                  parameter.weight);
      continue;
    }
    replica.states[index].Step(steps_[index], rates_[index], parameter.grad,
                               parameter.num_elements, parameter.weight, {});
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
          FloatTensor({parameter.weight, 4 * parameter.num_elements}));
    }
    RETURN_IF_ERROR(store_.Pull(static_cast<Key>(i), views, 0).Wait(deadline));
  }
  // Nobody pushes before all have them.
  return store_.group().Gather("pulled", "").status();
}

double GradientExchange::TakeWait() { return std::exchange(wait_, 0); }

}  // namespace telegrad
