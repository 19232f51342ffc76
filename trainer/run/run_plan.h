#pragma once

#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "kvstore/tuning/auto_compression.h"
#include "kvstore/tuning/job_plan.h"
#include "trainer/run/worker_run.h"

namespace telegrad {

// Variables that choose the network and must be the same on all workers, for
// DistOptions::facts.
Facts NetworkVariables();

// After the store's Init: what --gc-packing auto is by the link's rate, and
// why.
void SayPacking(RunContext& context);

// A run's plan: what the planner decided for all workers, and with --gc-type
// auto the codec that it chooses while the run goes on.
class RunPlan {
 public:
  // Before the store's Init: plans the exchange of `tensors` (not for a single
  // worker), shows it, keeps it in the context, and gives tensors what it
  // decides of them: with --plan and --chunk-elems auto all workers agree on
  // it, else it decides nothing, and worker 0 alone has it. Errors as
  // AgreeOnExchange.
  absl::Status Agree(RunContext& context, std::span<TensorSpec> tensors);
  // After Init; `choice` is what another run of --gc-type auto has kept, or "".
  // Errors as AutoCompression.
  absl::Status Start(std::span<const TensorSpec> tensors,
                     const std::string& choice = {});
  // For Start; "" where nothing is kept.
  std::string SaveChoice() const {
    return auto_ == nullptr ? "" : ToJson(auto_->choice());
  }
  absl::Status AfterStep(const StepTimes& times);
  // Whether AfterStep must be told of a step whose exchange is over.
  bool DecidesAfterStep() const {
    return auto_ != nullptr && auto_->DecidesAfterStep();
  }

  // The priority for PushPull: first layers first.
  int PriorityOf(size_t key) const {
    return key < priorities_.size() ? priorities_[key] : -static_cast<int>(key);
  }

 private:
  void Show(const ExchangePlan& exchange);
  void ShowChunks(std::span<const TensorSpec> tensors);
  absl::Status StartAuto(std::span<const TensorSpec> tensors,
                         const std::string& choice);
  void Say(const AutoCompression::Decisions& decisions);

  RunContext* context_ = nullptr;
  std::vector<int> priorities_ = {};
  int machines_ = 1;
  std::unique_ptr<AutoCompression> auto_;
};

}  // namespace telegrad
