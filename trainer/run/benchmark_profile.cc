#include <memory>

#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "base/units.h"
#include "trainer/checkpoint/digest.h"
#include "trainer/flags/profile.h"
#include "trainer/run/run_device.h"
#include "trainer/run/run_plan.h"
#include "trainer/run/synthetic_gradients.h"
#include "trainer/run/worker_run.h"

namespace telegrad {
namespace {

constexpr int64_t kDefaultBatches = 10;

absl::StatusOr<std::string> DigestOfSums(SyntheticGradients& gradients) {
  ASSIGN_OR_RETURN(const std::vector<Buffer> sums, gradients.ReadSums());
  std::vector<std::pair<const float*, size_t>> tensors;
  for (const Buffer& sum : sums) {
    tensors.emplace_back(sum.as<float>(), sum.size() / 4);
  }
  return Sha256OfFloats(tensors);
}

StoreStats Since(const StoreStats& part, StoreStats traffic) {
  traffic.push_raw_bytes -= part.push_raw_bytes;
  traffic.push_wire_bytes -= part.push_wire_bytes;
  traffic.pull_raw_bytes -= part.pull_raw_bytes;
  traffic.pull_wire_bytes -= part.pull_wire_bytes;
  return traffic;
}

absl::StatusOr<std::vector<Device>> ChooseDevices(RunContext& context) {
  std::vector<Device> devices;
  for (int i = 0; i < context.options.devices; ++i) {
    ASSIGN_OR_RETURN(devices.emplace_back(), ChooseDevice(context, i));
  }
  return devices;
}

}  // namespace

absl::StatusOr<RunSummary> BenchmarkProfile(RunContext& context) {
  const TrainOptions& options = context.options;
  ASSIGN_OR_RETURN(const std::vector<Device> devices, ChooseDevices(context));
  ASSIGN_OR_RETURN(std::vector<TensorSpec> specs, LoadProfile(options.network));
  for (TensorSpec& each : specs) each.devices = devices;
  RETURN_IF_ERROR(context.store.SetOptimizer({}));
  RunPlan run_plan;
  RETURN_IF_ERROR(run_plan.Agree(context, specs));
  RETURN_IF_ERROR(context.store.Init(specs, {}).status());
  SayPacking(context);
  RETURN_IF_ERROR(run_plan.Start(specs));
  ASSIGN_OR_RETURN(
      SyntheticGradients gradients,
      SyntheticGradients::Make(specs, context.seed,
                               context.store.group().rank(), devices));
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
        gradients.Exchange(
            context.store,
            [&run_plan](size_t key) { return run_plan.PriorityOf(key); },
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
    context.metrics.AfterStep(seconds, seconds);
    for (const Straggler& each : watch.AfterStep(seconds, seconds)) {
      context.Warn(each, step + 1);
    }
    summary.seconds += seconds;
    context.observer.OnProgress({.epoch = 0,
                                 .num_epochs = 1,
                                 .batch = step + 1,
                                 .num_batches = steps,
                                 .samples_per_s = 0,
                                 .accuracy = 0});
  }
  totals.traffic = Since(totals.traffic, context.store.stats());
  totals.shares = watch.mine();
  ASSIGN_OR_RETURN(totals.weights_sha256, DigestOfSums(gradients));
  summary.steps = steps;
  summary.model_bytes = gradients.num_bytes();
  RETURN_IF_ERROR(FillSummary(context, totals, summary));
  return summary;
}

}  // namespace telegrad
