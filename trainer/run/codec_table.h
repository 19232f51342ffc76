#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "kvstore/kvstore.h"
#include "trainer/flags/options.h"
#include "trainer/report/results.h"
#include "trainer/run/worker_run.h"

namespace telegrad {

// A table of which tensor gets which codec and why: one line for each, equal
// neighbours in one, and the totals.
std::vector<std::string> PlanLines(const std::vector<TensorReport>& reports);

// What is probably not meant: rules (of --gc-rule) that decide for no tensor, a
// codec with a momentum of its own beside the optimizer's, and codes of few
// bits before a mean of squares (StepsByMeanSquares) or momentum.
std::vector<std::string> PlanWarnings(const std::vector<TensorReport>& reports,
                                      const Setting& setting,
                                      const TrainOptions& options);

// Both, to the observer; codecs that a run of so many steps never sees; and
// that steps which may be skipped do not overlap with the exchange.
void TellPlan(RunContext& context, int64_t num_steps);

// What metrics.jsonl holds per tensor: those with a sample, or with
// elements that were not finite.
std::vector<TensorMetrics> ToMetrics(const std::vector<TensorReport>& reports);

// Says when the guard has made a tensor dense, as a decision of the run: once,
// and again for another codec.
class GuardNews {
 public:
  void Tell(const std::vector<TensorReport>& reports, int64_t step,
            RunContext& context);

 private:
  std::vector<std::string> told_;  // by tensor: the codec
};

// "sum", "reencode" or "dense": what servers answer for compressed tensors.
std::string ReplyOf(const std::vector<TensorReport>& reports);

}  // namespace telegrad
