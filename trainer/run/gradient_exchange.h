#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/bytes.h"
#include "kvstore/kvstore.h"
#include "kvstore/optimizer.h"
#include "trainer/networks/network.h"
#include "trainer/run/exchange_clock.h"
#include "trainer/run/step_timeline.h"

namespace telegrad {

// What a device trains: its copy of the network, with what steps it.
struct Replica {
  std::unique_ptr<Network> network;
  std::vector<OptimizerState> states = {};  // where workers step the weights
  std::vector<Buffer> pulled = {};          // where servers do: what came back
  int batch_size = 0;                       // samples of a step
  bool has_muon = false;  // steps hidden weights where workers step them
};

// A worker's tensors under way between backward and the weights. Each is
// stepped when its sum is there, on the thread that asks, so that the next
// forward can start before the last sum came. After an error the weights are of
// no step: the run ends. One thread.
class GradientExchange {
 public:
  // `replicas` by device, all stepped with the same sums. An operation that
  // takes longer than `timeout` is cancelled: DeadlineExceeded names what is
  // missing. `timeline` may be null.
  GradientExchange(KVStore& store, std::span<Replica> replicas,
                   Duration timeout, StepTimeline* timeline = nullptr);
  ~GradientExchange();  // cancels what is under way

  // The optimizer for the tensors that are pushed from now on.
  void set_optimizer(const OptimizerConfig& config) { optimizer_ = config; }
  // By tensor, where workers step the weights.
  void set_rates(std::vector<RateMultipliers> rates) {
    rates_ = std::move(rates);
  }
  const std::vector<RateMultipliers>& rates() const { return rates_; }
  // --adam-freeze-after, where workers step the weights; 0: never.
  void set_frozen_after(int64_t steps) {
    frozen_after_ = static_cast<uint64_t>(steps);
  }

  // Codecs get gradients of one size: OptimizerState::ToNormal.
  void set_normalizes(bool normalizes) { normalizes_ = normalizes; }

  // Pushes tensor `index` of all devices, which must be finished. Larger
  // priorities go first.
  void Push(size_t index, int priority);
  // Until this tensor's weights are stepped; others whose sums arrive meanwhile
  // are, too.
  absl::Status Finish(size_t index);
  // What has arrived; waits for nothing.
  absl::Status FinishArrived();
  absl::Status FinishAll();
  // Where the store has weights: all workers get the same ones, once all have
  // pushed what they have. All call it, with nothing under way.
  absl::Status PullWeights();

  // Seconds of waiting since this was last asked.
  double TakeWait();
  // From a step's first push until its last tensor was stepped, of the last
  // step that is whole.
  double exchange_seconds() const { return exchange_seconds_; }

 private:
  absl::Status Step(size_t index);
  // What a worker makes of its gradient in front of the codec.
  void Prepare(const Replica& replica, size_t index);
  void StepReplica(Replica& replica, size_t index);
  bool IsFrozen(const OptimizerState& state) const {
    return frozen_after_ > 0 && state.num_steps() >= frozen_after_;
  }

  KVStore& store_;
  const std::span<Replica> replicas_;
  const Duration timeout_;
  StepTimeline* const timeline_;
  OptimizerConfig optimizer_ = {};
  std::vector<RateMultipliers> rates_;
  uint64_t frozen_after_ = 0;
  bool normalizes_ = false;
  CompletionQueue done_;
  std::vector<Ticket> tickets_;
  std::vector<bool> is_pending_;
  std::vector<OptimizerConfig> steps_;  // each tensor's, when it was pushed
  size_t num_pending_ = 0;
  ExchangeClock clock_;
  double wait_ = 0;
  double exchange_seconds_ = 0;
};

}  // namespace telegrad
