#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "kernels/dispatch.h"
#include "trainer/auto_run.h"
#include "trainer/compression_plan.h"
#include "trainer/dataset.h"
#include "trainer/injection.h"
#include "trainer/network.h"
#include "trainer/run_plan.h"
#include "trainer/worker_run.h"

namespace telegrad {
namespace {

using Json = nlohmann::json;
constexpr int64_t kEvaluationBatch = 256;

// One worker's training run.
class Training {
 public:
  Training(RunContext& context, DatasetPair data,
           std::unique_ptr<Network> network, Injection injection)
      : context_(context),
        data_(std::move(data)),
        network_(std::move(network)),
        injection_(std::move(injection)) {}

  absl::StatusOr<RunSummary> Run();

 private:
  absl::Status Init();
  absl::Status RunEpoch(int epoch);
  absl::Status RunStep(const uint32_t* samples);
  void PushGradient(size_t index);
  absl::Status PushAllUnlessNonFinite(bool* skips);
  absl::Status WaitAndUpdate();
  absl::Status Evaluate(int epoch);
  void Report(int epoch, int64_t batch, int64_t num_batches);
  std::string Digest() const;

  RunContext& context_;
  DatasetPair data_;
  std::unique_ptr<Network> network_;
  const Injection injection_;
  std::vector<Buffer> momenta_;  // update_on worker
  std::vector<Buffer> pulled_;   // update_on server: weights that came back
  std::vector<Ticket> tickets_;
  std::vector<float> images_;
  std::vector<int64_t> labels_;
  kernels::SgdParameters sgd_;

  int64_t step_ = 0;
  int64_t num_skipped_ = 0;
  double seconds_ = 0;  // of steps
  WorkerTotals totals_;
  GuardNews guard_news_;
  AutoRun auto_run_;
  RunPlan run_plan_;
  TimePoint first_push_;
  StepTimes times_;  // of the running step
  RunSummary summary_;
  BatchResult since_point_;    // since the last metric point
  BatchResult since_display_;  // since the last line of progress
  double display_seconds_ = 0;
};

void Add(const BatchResult& batch, BatchResult& sum) {
  sum.loss_sum += batch.loss_sum;
  sum.num_correct += batch.num_correct;
  sum.num_samples += batch.num_samples;
}

double Ratio(double part, int64_t whole) {
  return whole > 0 ? part / static_cast<double>(whole) : 0;
}

absl::Status Training::Init() {
  const auto& parameters = network_->parameters();
  std::vector<TensorSpec> specs;
  std::vector<Bytes> values;
  for (const Parameter& parameter : parameters) {
    specs.push_back({parameter.name, parameter.num_elements});
    values.emplace_back(parameter.weight, 4 * parameter.num_elements);
    summary_.model_bytes += static_cast<int64_t>(4 * parameter.num_elements);
  }
  // The number of workers is known after Init, the servers' optimizer needs it
  // before: both come from the same options.
  RETURN_IF_ERROR(context_.store.SetOptimizer(MakeOptimizer(
      context_.options, context_.setting, context_.options.workers)));
  RETURN_IF_ERROR(context_.store.Init(specs, values));
  RETURN_IF_ERROR(PackRun(context_));
  const std::vector<TensorReport> plan = context_.store.Report();
  for (const std::string& line : PlanLines(plan)) {
    context_.observer.OnLine(line);
  }
  if (const int64_t steps = context_.setting.compression.warmup_steps;
      steps > 0) {
    context_.observer.OnLine(
        absl::StrCat("  warm-up: all go dense in the first ", steps, " steps"));
  }
  for (const std::string& line : PlanWarnings(
           plan, context_.setting.compression.rules, context_.options.mom)) {
    context_.observer.OnLine(line);
  }
  const bool on_server = context_.setting.update_on == UpdateOn::kServer;
  for (const Parameter& parameter : parameters) {
    (on_server ? pulled_ : momenta_).emplace_back(4 * parameter.num_elements);
  }
  sgd_ = MakeOptimizer(context_.options, context_.setting,
                       context_.store.num_workers())
             .sgd;
  tickets_.resize(parameters.size());
  RETURN_IF_ERROR(run_plan_.Start(context_, specs));
  return auto_run_.Start(context_, run_plan_.speeds());
}

void Training::PushGradient(size_t index) {
  const Parameter& parameter = network_->parameters()[index];
  const size_t bytes = 4 * parameter.num_elements;
  injection_.Apply(context_.store.rank(), step_, parameter);
  if (index + 1 == tickets_.size()) first_push_ = Clock::now();
  const Bytes out =
      pulled_.empty() ? Bytes(parameter.grad, bytes) : pulled_[index].view();
  // First layers first: their weights are needed first in the next step.
  tickets_[index] =
      context_.store.PushPull(static_cast<Key>(index), {parameter.grad, bytes},
                              out, run_plan_.PriorityOf(index));
}

// Policy skip: no gradient leaves before all workers have seen that all are
// finite; communication does not overlap with backward.
absl::Status Training::PushAllUnlessNonFinite(bool* skips) {
  const auto& parameters = network_->parameters();
  kernels::EncodeStats stats;
  for (size_t i = 0; i < parameters.size(); ++i) {
    injection_.Apply(context_.store.rank(), step_, parameters[i]);
    kernels::CpuKernels().count_nonfinite(
        parameters[i].grad, parameters[i].num_elements, &stats, {});
  }
  ASSIGN_OR_RETURN(
      const std::vector<std::string> all,
      context_.store.Gather("finite", stats.num_nonfinite > 0 ? "1" : "0"));
  *skips = std::find(all.begin(), all.end(), "1") != all.end();
  if (*skips) return absl::OkStatus();
  for (size_t i = parameters.size(); i-- > 0;) PushGradient(i);
  return absl::OkStatus();
}

absl::Status Training::WaitAndUpdate() {
  const auto& parameters = network_->parameters();
  const TimePoint deadline =
      Clock::now() + FromSeconds(context_.options.operation_timeout_s);
  // All before any: a step is applied whole or not at all.
  const TimePoint start = Clock::now();
  for (const Ticket& ticket : tickets_) RETURN_IF_ERROR(ticket.Wait(deadline));
  times_.wait = SecondsSince(start);
  times_.exchange = SecondsSince(first_push_);
  totals_.comm_wait_s += times_.wait;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& parameter = parameters[i];
    if (!pulled_.empty()) {
      std::copy_n(pulled_[i].as<float>(), parameter.num_elements,
                  parameter.weight);
      continue;
    }
    kernels::CpuKernels().sgd_momentum(parameter.grad, parameter.num_elements,
                                       sgd_, parameter.weight,
                                       momenta_[i].as<float>(), {});
  }
  return absl::OkStatus();
}

absl::Status Training::RunStep(const uint32_t* samples) {
  const auto batch = static_cast<size_t>(context_.options.batch_size);
  GatherBatch(data_.train, samples, batch, images_.data(), labels_.data());
  const TimePoint start = Clock::now();
  context_.store.SetStep(step_);
  const bool may_skip =
      context_.setting.compression.nonfinite == NonFinitePolicy::kSkip;
  const BatchResult result =
      network_->ForwardBackward(images_.data(), labels_.data(),
                                static_cast<int64_t>(batch), [&](size_t index) {
                                  if (!may_skip) PushGradient(index);
                                });
  bool skips = false;
  if (may_skip) RETURN_IF_ERROR(PushAllUnlessNonFinite(&skips));
  if (skips) {
    ++num_skipped_;
  } else {
    RETURN_IF_ERROR(WaitAndUpdate());
  }
  ++step_;
  const double seconds = SecondsSince(start);
  seconds_ += seconds;
  display_seconds_ += seconds;
  totals_.step_seconds.push_back(seconds);
  Add(result, since_point_);
  Add(result, since_display_);
  if (skips) return absl::OkStatus();
  times_.step = seconds;
  RETURN_IF_ERROR(auto_run_.AfterStep(times_));
  return run_plan_.AfterStep(times_, auto_run_);
}

void Training::Report(int epoch, int64_t batch, int64_t num_batches) {
  const TrainOptions& options = context_.options;
  const int64_t workers = context_.store.num_workers();
  if (batch % options.display_batches != 0 && batch != num_batches) return;
  context_.observer.OnProgress(
      {.epoch = epoch,
       .num_epochs = options.num_epochs,
       .batch = batch,
       .num_batches = num_batches,
       .samples_per_s =
           static_cast<double>(since_display_.num_samples * workers) /
           std::max(display_seconds_, 1e-9),
       .accuracy = Ratio(static_cast<double>(since_display_.num_correct),
                         since_display_.num_samples)});
  since_display_ = {};
  display_seconds_ = 0;
  const Traffic traffic = context_.store.traffic();
  MetricPoint point;
  point.epoch = epoch;
  point.step = step_;
  point.seconds = seconds_;
  point.train_loss = Ratio(since_point_.loss_sum, since_point_.num_samples);
  point.train_accuracy = Ratio(static_cast<double>(since_point_.num_correct),
                               since_point_.num_samples);
  // All workers send and receive the same amount.
  const std::vector<TensorReport> reports = context_.store.Report();
  point.tensors = ToMetrics(reports);
  guard_news_.Tell(reports, step_, context_.setting.compression.warmup_steps,
                   context_.observer);
  point.wire_bytes =
      workers * (traffic.push_wire_bytes + traffic.pull_wire_bytes);
  summary_.points.push_back(point);
  since_point_ = {};
}

absl::Status Training::RunEpoch(int epoch) {
  const TrainOptions& options = context_.options;
  const std::vector<uint32_t> samples = EpochShare(
      data_.train.size(), context_.seed, epoch, context_.store.rank(),
      context_.store.num_workers(), options.batch_size);
  auto num_batches = static_cast<int64_t>(samples.size()) / options.batch_size;
  if (options.num_batches > 0) {
    num_batches = std::min(num_batches, options.num_batches);
  }
  if (num_batches == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("batch size ", options.batch_size, " times ",
                     context_.store.num_workers(), " workers is more than the ",
                     data_.train.size(), " samples of ", data_.train.name));
  }
  for (int64_t batch = 0; batch < num_batches; ++batch) {
    RETURN_IF_ERROR(RunStep(samples.data() + batch * options.batch_size));
    Report(epoch, batch + 1, num_batches);
  }
  return options.benchmark ? absl::OkStatus() : Evaluate(epoch);
}

// Each worker takes a share of the test set; all learn the whole result.
absl::Status Training::Evaluate(int epoch) {
  const auto rank = static_cast<size_t>(context_.store.rank());
  const auto workers = static_cast<size_t>(context_.store.num_workers());
  const size_t size = data_.test.size();
  const size_t end = size * (rank + 1) / workers;
  BatchResult mine;
  std::vector<float> images;
  std::vector<int64_t> labels(kEvaluationBatch);
  images.resize(kEvaluationBatch * data_.test.pixels_per_image());
  for (size_t at = size * rank / workers; at < end;) {
    const size_t count = std::min<size_t>(kEvaluationBatch, end - at);
    std::vector<uint32_t> indices(count);
    for (size_t i = 0; i < count; ++i) {
      indices[i] = static_cast<uint32_t>(at + i);
    }
    GatherBatch(data_.test, indices.data(), count, images.data(),
                labels.data());
    Add(network_->Evaluate(images.data(), labels.data(),
                           static_cast<int64_t>(count)),
        mine);
    at += count;
  }
  const Json payload = {mine.loss_sum, mine.num_correct, mine.num_samples};
  ASSIGN_OR_RETURN(const std::vector<std::string> all,
                   context_.store.Gather("evaluate", payload.dump()));
  BatchResult total;
  for (const std::string& text : all) {
    const Json part = Json::parse(text, nullptr, false);
    if (!part.is_array() || part.size() != 3 ||
        !(part[0].is_number() || part[0].is_null()) ||
        !part[1].is_number_integer() || !part[2].is_number_integer()) {
      return absl::InternalError("a worker's evaluation is malformed");
    }
    // JSON has null for a loss that is not finite.
    Add({.loss_sum = part[0].is_null() ? std::nan("") : part[0].get<double>(),
         .num_correct = part[1].get<int64_t>(),
         .num_samples = part[2].get<int64_t>()},
        total);
  }
  summary_.accuracy =
      Ratio(static_cast<double>(total.num_correct), total.num_samples);
  summary_.loss = Ratio(total.loss_sum, total.num_samples);
  if (!summary_.points.empty()) {
    summary_.points.back().test_accuracy = summary_.accuracy;
    summary_.points.back().test_loss = summary_.loss;
  }
  context_.observer.OnLine(absl::StrFormat("Epoch[%d] Validation-accuracy=%.6f",
                                           epoch, summary_.accuracy));
  return absl::OkStatus();
}

std::string Training::Digest() const {
  std::vector<std::pair<const float*, size_t>> tensors;
  for (const Parameter& parameter : network_->parameters()) {
    tensors.emplace_back(parameter.weight, parameter.num_elements);
  }
  return Sha256OfFloats(tensors);
}

absl::StatusOr<RunSummary> Training::Run() {
  RETURN_IF_ERROR(Init());
  const TrainOptions& options = context_.options;
  images_.resize(static_cast<size_t>(options.batch_size) *
                 data_.train.pixels_per_image());
  labels_.resize(static_cast<size_t>(options.batch_size));
  for (int epoch = 0; epoch < options.num_epochs; ++epoch) {
    for (const int step : options.lr_step_epochs) {
      if (step == epoch) sgd_.learning_rate *= options.lr_factor;
    }
    RETURN_IF_ERROR(RunEpoch(epoch));
  }
  if (num_skipped_ > 0) {
    context_.observer.OnLine(absl::StrCat(
        num_skipped_, " steps were skipped: non-finite gradients"));
  }
  totals_.traffic = context_.store.traffic();
  totals_.weights_sha256 = Digest();
  summary_.steps = step_;
  summary_.seconds = seconds_;
  summary_.samples_per_s = static_cast<double>(step_ * options.batch_size *
                                               context_.store.num_workers()) /
                           std::max(seconds_, 1e-9);
  RETURN_IF_ERROR(FillSummary(context_, totals_, summary_));
  return summary_;
}

// Noise of the right shape; what is learnt does not matter.
DatasetPair SyntheticData(uint64_t seed, size_t num_samples) {
  Dataset data;
  data.name = "synthetic";
  data.pixels.resize(num_samples * data.pixels_per_image());
  data.labels.resize(num_samples);
  Random random(seed, 77);
  for (uint8_t& pixel : data.pixels) {
    pixel = static_cast<uint8_t>(random.NextU32());
  }
  for (uint8_t& label : data.labels) {
    label = static_cast<uint8_t>(random.NextBelow(10));
  }
  return {.train = data, .test = data};
}

}  // namespace

absl::StatusOr<RunSummary> TrainNetwork(RunContext& context) {
  const TrainOptions& options = context.options;
  ConfigureFramework(1);
  DatasetPair data;
  if (options.benchmark) {
    data = SyntheticData(context.seed,
                         static_cast<size_t>(options.batch_size) *
                             static_cast<size_t>(options.workers) * 100);
  } else {
    ASSIGN_OR_RETURN(data, LoadDataset(options.data));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<Network> network,
                   MakeNetwork({.name = options.network,
                                .channels = data.train.channels,
                                .rows = data.train.rows,
                                .cols = data.train.cols,
                                .num_classes = data.train.num_classes,
                                .seed = context.seed}));
  ASSIGN_OR_RETURN(Injection injection, ParseInjection(options.inject));
  return Training(context, std::move(data), std::move(network),
                  std::move(injection))
      .Run();
}

}  // namespace telegrad
