#include <memory>

#include "absl/strings/str_format.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/units.h"
#include "trainer/digest.h"
#include "trainer/profile.h"
#include "trainer/run_plan.h"
#include "trainer/worker_run.h"

namespace telegrad {
namespace {

constexpr int64_t kDefaultBatches = 10;

// Gradients of the profile's sizes, filled once: tensor k has the scale
// 2^-(k%8) so that thresholds differ.
struct SyntheticGradients {
  std::vector<TensorSpec> specs;
  std::vector<Buffer> grads;
  std::vector<Buffer> sums;
  int64_t num_bytes = 0;
};

SyntheticGradients MakeGradients(std::vector<TensorSpec> specs, uint64_t seed,
                                 int rank) {
  SyntheticGradients result;
  constexpr size_t kPattern = 4093;  // values; a prime, so that runs differ
  std::vector<float> pattern(kPattern);
  Random random(seed, static_cast<uint64_t>(rank) + 1);
  for (float& value : pattern) value = random.NextNormal();
  for (size_t key = 0; key < specs.size(); ++key) {
    const size_t n = specs[key].num_elems;
    Buffer grad(4 * n);
    const float scale = 1.0f / static_cast<float>(1 << (key % 8));
    for (size_t i = 0; i < n; ++i) {
      grad.as<float>()[i] = scale * pattern[(i * 7 + key) % kPattern];
    }
    result.num_bytes += static_cast<int64_t>(4 * n);
    result.grads.push_back(std::move(grad));
    result.sums.emplace_back(4 * n);
  }
  result.specs = std::move(specs);
  return result;
}

// One step: pushes and pulls everything in the order in which a backward pass
// would, last layers first; waits in forward order.
absl::StatusOr<double> Step(RunContext& context, const RunPlan& plan,
                            SyntheticGradients& gradients, TimePoint deadline) {
  const TimePoint start = Clock::now();
  std::vector<Ticket> tickets(gradients.specs.size());
  for (size_t i = gradients.specs.size(); i-- > 0;) {
    tickets[i] =
        context.store.PushPull(static_cast<Key>(i), gradients.grads[i].view(),
                               gradients.sums[i].view(), plan.PriorityOf(i));
  }
  for (const Ticket& ticket : tickets) RETURN_IF_ERROR(ticket.Wait(deadline));
  return SecondsSince(start);
}

std::string DigestOfSums(const SyntheticGradients& gradients) {
  std::vector<std::pair<const float*, size_t>> tensors;
  for (const Buffer& sum : gradients.sums) {
    tensors.emplace_back(sum.as<float>(), sum.size() / 4);
  }
  return Sha256OfFloats(tensors);
}

}  // namespace

absl::StatusOr<RunSummary> BenchmarkProfile(RunContext& context) {
  const TrainOptions& options = context.options;
  ASSIGN_OR_RETURN(std::vector<TensorSpec> specs, LoadProfile(options.network));
  RETURN_IF_ERROR(context.store.SetOptimizer({}));
  RunPlan run_plan;
  RETURN_IF_ERROR(run_plan.Agree(context, specs));
  RETURN_IF_ERROR(context.store.Init(specs, {}).status());
  RETURN_IF_ERROR(PackRun(context));
  RETURN_IF_ERROR(run_plan.Start(specs));
  SyntheticGradients gradients = MakeGradients(std::move(specs), context.seed,
                                               context.store.group().rank());
  const int64_t steps =
      options.num_batches > 0 ? options.num_batches : kDefaultBatches;
  RunSummary summary;
  WorkerTotals totals;
  StragglerWatch watch(context.store);
  // The first step, untimed, agrees on thresholds and touches all memory.
  for (int64_t step = -1; step < steps; ++step) {
    RETURN_IF_ERROR(context.store.group().Gather("step", "").status());
    context.store.group().SetStep(step + 1);
    context.timeline.BeforeStep();
    ASSIGN_OR_RETURN(
        const double seconds,
        Step(context, run_plan, gradients,
             Clock::now() + FromSeconds(options.operation_timeout_s)));
    if (step < 0) {
      totals.traffic = context.store.stats();
      continue;
    }
    const StepTimes times{
        .step = seconds, .exchange = seconds, .wait = seconds};
    RETURN_IF_ERROR(run_plan.AfterStep(times));
    totals.step_seconds.push_back(seconds);
    totals.comm_wait_s += seconds;
    for (const std::string& line : watch.AfterStep(seconds, seconds)) {
      context.observer.OnNotice(line);
    }
    summary.seconds += seconds;
    context.observer.OnProgress({.epoch = 0,
                                 .num_epochs = 1,
                                 .batch = step + 1,
                                 .num_batches = steps,
                                 .samples_per_s = 0,
                                 .accuracy = 0});
  }
  const StoreStats warm_up = totals.traffic;
  totals.traffic = context.store.stats();
  totals.shares = watch.mine();
  totals.traffic.push_raw_bytes -= warm_up.push_raw_bytes;
  totals.traffic.push_wire_bytes -= warm_up.push_wire_bytes;
  totals.traffic.pull_raw_bytes -= warm_up.pull_raw_bytes;
  totals.traffic.pull_wire_bytes -= warm_up.pull_wire_bytes;
  totals.weights_sha256 = DigestOfSums(gradients);
  summary.steps = steps;
  summary.model_bytes = gradients.num_bytes;
  RETURN_IF_ERROR(FillSummary(context, totals, summary));
  return summary;
}

}  // namespace telegrad
