#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "trainer/checkpoint/checkpointing.h"
#include "trainer/data/batch_reader.h"
#include "trainer/data/dataset.h"
#include "trainer/flags/training_flags.h"
#include "trainer/networks/framework.h"
#include "trainer/networks/loss_scale.h"
#include "trainer/networks/network.h"
#include "trainer/run/backup_steps.h"
#include "trainer/run/codec_table.h"
#include "trainer/run/device_room.h"
#include "trainer/run/epoch_batches.h"
#include "trainer/run/evaluation.h"
#include "trainer/run/gradient_exchange.h"
#include "trainer/run/gradients.h"
#include "trainer/run/injection.h"
#include "trainer/run/local_steps.h"
#include "trainer/run/replica_steps.h"
#include "trainer/run/run_device.h"
#include "trainer/run/run_plan.h"
#include "trainer/run/worker_run.h"

namespace telegrad {
namespace {

constexpr double kMostUnseenSeconds = 1;  // how long a bar may be out of date

// One worker's training run, on one device or on several one after the other.
class Training {
 public:
  Training(RunContext& context, std::vector<Replica> replicas,
           Injection injection)
      : context_(context),
        data_(*context.data),
        replicas_(std::move(replicas)),
        injection_(std::move(injection)),
        num_contributors_(context.store.group().num_workers() *
                          static_cast<int>(replicas_.size())),
        exchange_(context.store, replicas_,
                  FromSeconds(context.options.operation_timeout_s),
                  &context.timeline),
        reader_(data_.train,
                {.pad = context.options.pad_size,
                 .has_mirror = context.options.random_mirror,
                 .seed = context.seed},
                static_cast<size_t>(
                    *std::max_element(context.options.device_batches.begin(),
                                      context.options.device_batches.end()))),
        backups_(context, reader_),
        checkpoints_(context, replicas_),
        watch_(context.store) {}

  absl::StatusOr<RunSummary> Run();

 private:
  absl::Status Init();
  std::vector<TensorSpec> MakeSpecs();
  absl::Status PrepareSteps(const OptimizerConfig& optimizer);
  absl::Status RunEpoch(int epoch, int64_t first_batch);
  absl::Status RunStep(bool is_shown, bool ends_epoch);
  absl::Status Exchange(bool ends_epoch, bool* skips);
  absl::Status SetRate(float rate);
  absl::StatusOr<BatchResult> Compute(Replica& replica);
  absl::Status Resume();
  int64_t SamplesPerStep() const {
    return int64_t{context_.options.batch_size} *
           context_.options.grad_accumulation * num_contributors_;
  }
  bool PushesInBackward() const {
    return !MaySkip() && context_.options.clip_norm == 0 && !alone_.has_value();
  }
  EpochBatches Deal(int epoch, int64_t first_batch) const {
    const WorkerGroup& group = context_.store.group();
    return DealSamples(context_.options, data_.train.size(), context_.seed,
                       epoch, group.rank(), group.num_workers(), first_batch);
  }
  // Since the run's first step.
  StoreStats Traffic() const { return Plus(context_.store.stats(), earlier_); }
  // A checkpoint, with which training goes on at this batch.
  absl::Status Save(int epoch, int64_t batch);
  bool SkipsByPolicy() const;
  bool MaySkip() const { return SkipsByPolicy() || loss_scale_.is_used; }
  void PushGradient(size_t index);
  void Inject(size_t index);
  absl::Status AgreeToSkip(bool* skips);
  absl::Status Evaluate(int epoch);
  Progress::State ProgressAt(int epoch, int64_t batch) const;
  // To who looks at a bar; `evaluated` as Progress has it.
  void ShowBetween(int epoch, int64_t batch, double evaluated);
  void Report(int epoch, int64_t batch);
  absl::Status AgreeOnStatistics() {
    return AgreeOnBuffers(context_.store.group(), replicas_,
                          context_.options.bn_stats == "rank0");
  }

  RunContext& context_;
  const DatasetPair& data_;
  std::vector<Replica> replicas_;  // by device; all with the same weights
  const Injection injection_;
  const int num_contributors_;  // devices of all workers
  GradientExchange exchange_;
  std::optional<LocalSteps> alone_;  // --local-steps
  absl::Status failure_;  // why forward could not wait for its weights
  BatchReader reader_;
  BackupSteps backups_;  // --drop-slowest
  Checkpointing checkpoints_;
  OptimizerConfig optimizer_;
  int64_t num_batches_ = 0;  // steps of an epoch

  int64_t step_ = 0;
  int first_epoch_ = 0;  // where this process begins, with its first batch
  int64_t first_batch_ = 0;
  int64_t num_skipped_ = 0;
  StoreStats earlier_;       // traffic before this process
  std::string auto_choice_;  // --gc-type auto's, from the run that goes on
  LossScale loss_scale_;
  double seconds_ = 0;  // seconds of steps
  WorkerTotals totals_;
  StragglerWatch watch_;
  GuardNews guard_news_;
  RunPlan run_plan_;
  RunSummary summary_;
  BatchResult since_point_;    // since the last metric point
  BatchResult since_display_;  // since the last line of progress
  double display_seconds_ = 0;
  int64_t display_steps_ = 0;
  TimePoint shown_at_;
};

double Ratio(double part, int64_t whole) {
  return whole > 0 ? part / static_cast<double>(whole) : 0;
}

// Tensors with their own rates, which the exchange gets, too.
std::vector<TensorSpec> Training::MakeSpecs() {
  std::vector<TensorSpec> specs;
  std::vector<RateMultipliers> rates;
  for (const Parameter& each : replicas_[0].network->parameters()) {
    rates.push_back(RatesOf(each.name, context_.options.rate_rules));
    if (!context_.options.wd_1d && each.shape.size() == 1) rates.back().wd = 0;
    specs.push_back({.name = each.name,
                     .num_elems = each.num_elements,
                     .rates = rates.back()});
    for (const Replica& replica : replicas_) {
      const Device device = replica.network->device();
      if (device != Device{}) specs.back().devices.push_back(device);
    }
    summary_.model_bytes += static_cast<int64_t>(4 * each.num_elements);
  }
  exchange_.set_rates(std::move(rates));
  exchange_.set_frozen_after(context_.options.adam_freeze_after);
  exchange_.set_normalizes(context_.setting.normalizes);
  return specs;
}

// What steps the weights, once they are the same everywhere.
absl::Status Training::PrepareSteps(const OptimizerConfig& optimizer) {
  optimizer_ = optimizer;
  const TrainOptions& options = context_.options;
  if (options.local_steps == 0) return absl::OkStatus();
  optimizer_.sgd.rescale = 1;
  alone_.emplace(context_.store, replicas_,
                 LocalSteps::OuterOf(options, context_.setting.compression,
                                     num_contributors_),
                 FromSeconds(options.operation_timeout_s));
  checkpoints_.set_alone(&*alone_);
  return alone_->Init();
}

absl::Status Training::Init() {
  RETURN_IF_ERROR(MakeRooms(replicas_, context_.setting.update_on,
                            context_.options.optimizer));
  ASSIGN_OR_RETURN(loss_scale_, MakeLossScale(context_.options.dtype,
                                              context_.options.loss_scale));
  num_batches_ = Deal(0, INT64_MAX).num_steps;
  RETURN_IF_ERROR(Resume());
  std::vector<TensorSpec> specs = MakeSpecs();
  std::vector<TensorView> values;
  for (size_t i = 0; i < specs.size(); ++i) {
    for (const Replica& replica : replicas_) {
      values.push_back(ViewOf(*replica.network,
                              replica.network->parameters()[i].weight,
                              specs[i].num_elems));
    }
  }
  // Without rounds a push is a step of one worker.
  const OptimizerConfig optimizer = MakeOptimizer(
      context_.options, context_.setting,
      context_.store.traits().is_async ? static_cast<int>(replicas_.size())
                                       : num_contributors_);
  RETURN_IF_ERROR(context_.store.SetOptimizer(optimizer));
  RETURN_IF_ERROR(run_plan_.Agree(context_, specs));
  RETURN_IF_ERROR(context_.store.Init(specs, values).status());
  SayPacking(context_);
  const std::string transport = context_.store.transport_details();
  if (!transport.empty()) {
    context_.observer.OnNotice(
        absl::StrCat("connected: ", FirstOf(transport), SealedOf(transport)));
  }
  TellPlan(context_, num_batches_ * context_.options.num_epochs);
  RETURN_IF_ERROR(PrepareSteps(optimizer));
  RETURN_IF_ERROR(checkpoints_.ResumeStore());
  RETURN_IF_ERROR(run_plan_.Start(specs, auto_choice_));
  // What came before the first step is in it.
  if (context_.options.resume) {
    earlier_ = Plus(earlier_, context_.store.stats(), -1);
  }
  return absl::OkStatus();
}

void Training::Inject(size_t index) {
  const auto count = static_cast<int>(replicas_.size());
  for (int device = 0; device < count; ++device) {
    injection_.Apply(context_.store.group().rank() * count + device, step_,
                     *replicas_[static_cast<size_t>(device)].network, index);
  }
}

void Training::PushGradient(size_t index) {
  if (!failure_.ok()) return;
  Inject(index);
  // First layers first: their weights are needed first in the next step.
  exchange_.Push(index, run_plan_.PriorityOf(index));
}

bool Training::SkipsByPolicy() const {
  return context_.setting.compression.nonfinite == NonFinitePolicy::kSkip;
}

// No gradient leaves before all workers have seen that all are finite;
// communication does not overlap with backward.
absl::Status Training::AgreeToSkip(bool* skips) {
  bool is_finite = true;
  const size_t count = replicas_[0].network->parameters().size();
  for (size_t i = 0; i < count; ++i) Inject(i);
  for (const Replica& replica : replicas_) {
    is_finite &= replica.network->ScaleGradients(1 / loss_scale_.value);
    RETURN_IF_ERROR(replica.network->status());
  }
  ASSIGN_OR_RETURN(
      const std::vector<std::string> all,
      context_.store.group().Gather("finite", is_finite ? "0" : "1"));
  *skips = std::find(all.begin(), all.end(), "1") != all.end();
  const float before = loss_scale_.value;
  RETURN_IF_ERROR(loss_scale_.Update(!*skips, SkipsByPolicy()));
  if (loss_scale_.value != before) {
    context_.observer.OnNotice(absl::StrFormat(
        "loss scale %g from step %d on: %s", loss_scale_.value, step_ + 1,
        *skips ? "gradients were not finite"
               : absl::StrCat(LossScale::kStepsToGrow, " steps were finite")));
  }
  return absl::OkStatus();
}

absl::Status Training::Resume() {
  RETURN_IF_ERROR(checkpoints_.Hold());
  ASSIGN_OR_RETURN(std::optional<Cursor> cursor, checkpoints_.Resume());
  if (!cursor.has_value()) return absl::OkStatus();
  RETURN_IF_ERROR(CheckPlace(*cursor, context_.options, num_batches_));
  step_ = cursor->step;
  first_epoch_ = cursor->epoch;
  first_batch_ = cursor->batch;
  seconds_ = cursor->seconds;
  num_skipped_ = cursor->num_skipped;
  earlier_ = cursor->traffic;
  totals_.comm_wait_s = cursor->comm_wait_s;
  if (loss_scale_.is_dynamic) {
    loss_scale_.value = cursor->loss_scale.value;
    loss_scale_.num_good = cursor->loss_scale.num_good;
  }
  auto_choice_ = cursor->auto_choice;
  since_point_ = cursor->since_point;
  summary_.points = std::move(cursor->points);
  return absl::OkStatus();
}

absl::Status Training::Save(int epoch, int64_t batch) {
  Cursor cursor = {.step = step_,
                   .epoch = epoch,
                   .batch = batch,
                   .num_batches = num_batches_,
                   .seconds = seconds_,
                   .comm_wait_s = totals_.comm_wait_s,
                   .traffic = Traffic(),
                   .num_skipped = num_skipped_,
                   .loss_scale = loss_scale_,
                   .auto_choice = run_plan_.SaveChoice(),
                   .since_point = since_point_,
                   .points = std::move(summary_.points)};
  const absl::Status saved = checkpoints_.Save(cursor);
  summary_.points = std::move(cursor.points);
  return saved;
}

// One gradient: the mean over the batches of a step.
absl::StatusOr<BatchResult> Training::Compute(Replica& replica) {
  const TrainOptions& options = context_.options;
  // The last device's gradients complete those of all.
  const bool pushes = PushesInBackward() && &replica == &replicas_.back();
  const auto device = static_cast<int64_t>(&replica - replicas_.data());
  const int64_t contributor =
      context_.store.group().rank() * static_cast<int64_t>(replicas_.size()) +
      device;
  const int count = options.grad_accumulation;
  BatchResult result;
  for (int part = 0; part < count; ++part) {
    ASSIGN_OR_RETURN(const Batch* const batch, reader_.Next());
    const bool is_last = part + 1 == count;
    const TimePoint start = Clock::now();
    Add(replica.network->ForwardBackward(
            batch->values.data(), batch->labels.data(), replica.batch_size,
            {.weight_needed =
                 [this](size_t index) {
                   if (failure_.ok()) failure_ = exchange_.Finish(index);
                 },
             .gradient_ready =
                 [this, &replica, pushes, is_last](size_t index) {
                   if (!is_last) return;
                   WeighGradient(replica, index, context_.options.batch_size);
                   if (pushes) PushGradient(index);
                 },
             .draw = static_cast<uint64_t>(
                 (step_ * num_contributors_ + contributor) * count + part),
             .accumulates = part > 0,
             .share = loss_scale_.value / static_cast<float>(count)}),
        result);
    context_.timeline.Note("forward and backward", start);
    RETURN_IF_ERROR(replica.network->status());
  }
  return result;
}

// After backward, where it has not sent everything itself.
absl::Status Training::Exchange(bool ends_epoch, bool* skips) {
  const TrainOptions& options = context_.options;
  if (MaySkip()) RETURN_IF_ERROR(AgreeToSkip(skips));
  if (*skips || PushesInBackward()) return absl::OkStatus();
  for (const Replica& replica : replicas_) {
    if (options.clip_norm > 0) {
      replica.network->ClipGradients(options.clip_norm);
    }
    RETURN_IF_ERROR(replica.network->status());
  }
  const size_t count = replicas_[0].network->parameters().size();
  if (!alone_.has_value()) {
    for (size_t i = count; i-- > 0;) PushGradient(i);
    return absl::OkStatus();
  }
  for (size_t i = 0; i < count; ++i) Inject(i);
  RETURN_IF_ERROR(alone_->Step(optimizer_, exchange_.rates()));
  // Before the weights are looked at, all of them.
  return ends_epoch ? alone_->Exchange() : alone_->AfterStep(step_ + 1);
}

// Sets the rate of the next step. Where the store has the optimizer, all
// workers' change at once, between two steps.
absl::Status Training::SetRate(float rate) {
  if (rate == optimizer_.sgd.learning_rate) return absl::OkStatus();
  optimizer_.sgd.learning_rate = rate;
  if (context_.setting.update_on == UpdateOn::kWorker) return absl::OkStatus();
  RETURN_IF_ERROR(exchange_.FinishAll());
  return context_.store.SetOptimizer(optimizer_);
}

// A step ends when its gradients are on their way, and the next one's forward
// waits for the sums layer by layer; but before somebody is shown the step, and
// where its time decides something, all sums are waited for.
absl::Status Training::RunStep(bool is_shown, bool ends_epoch) {
  const TimePoint start = Clock::now();
  context_.timeline.BeforeStep();
  context_.store.group().SetStep(step_);
  injection_.Delay(context_.store.group().rank());
  BatchResult result;
  for (Replica& replica : replicas_) {
    ASSIGN_OR_RETURN(const BatchResult part, Compute(replica));
    Add(part, result);
    RETURN_IF_ERROR(failure_);
  }
  bool skips = false;
  RETURN_IF_ERROR(Exchange(ends_epoch, &skips));
  const bool is_whole = !context_.options.early_step || MaySkip() || is_shown ||
                        run_plan_.DecidesAfterStep();
  RETURN_IF_ERROR(is_whole ? exchange_.FinishAll() : exchange_.FinishArrived());
  for (const Replica& replica : replicas_) {
    if (is_shown) Add(replica.network->TakeResults(), result);
    RETURN_IF_ERROR(replica.network->status());
  }
  context_.AfterStep(++step_);
  num_skipped_ += skips ? 1 : 0;
  const double seconds = SecondsSince(start);
  const double wait =
      alone_.has_value() ? alone_->TakeWait() : exchange_.TakeWait();
  seconds_ += seconds;
  display_seconds_ += seconds;
  ++display_steps_;
  totals_.comm_wait_s += wait;
  totals_.step_seconds.push_back(seconds);
  context_.metrics.AfterStep(seconds, wait);
  for (const Straggler& each : watch_.AfterStep(seconds, wait)) {
    context_.Warn(each, step_);
  }
  Add(result, since_point_);
  Add(result, since_display_);
  if (skips) return absl::OkStatus();
  return run_plan_.AfterStep({.step = seconds,
                              .exchange = exchange_.exchange_seconds(),
                              .wait = wait});
}

Progress::State Training::ProgressAt(int epoch, int64_t batch) const {
  return {
      .epoch = epoch,
      .num_epochs = context_.options.num_epochs,
      .batch = batch,
      .num_batches = num_batches_,
      .samples_per_s = static_cast<double>(display_steps_ * SamplesPerStep()) /
                       std::max(display_seconds_, 1e-9),
      .accuracy = since_display_.num_samples > 0
                      ? Ratio(static_cast<double>(since_display_.num_correct),
                              since_display_.num_samples)
                      : -1};
}

void Training::ShowBetween(int epoch, int64_t batch, double evaluated) {
  if (SecondsSince(shown_at_) < kMostUnseenSeconds) return;
  Progress::State state = ProgressAt(epoch, batch);
  state.is_between = true;
  state.evaluated = evaluated;
  context_.observer.OnProgress(state);
  shown_at_ = Clock::now();
}

void Training::Report(int epoch, int64_t batch) {
  const int64_t workers = context_.store.group().num_workers();
  const Progress::State progress = ProgressAt(epoch, batch);
  context_.observer.OnProgress(progress);
  shown_at_ = Clock::now();
  since_display_ = {};
  display_seconds_ = 0;
  display_steps_ = 0;
  const StoreStats traffic = Traffic();
  MetricPoint point;
  point.epoch = epoch;
  point.step = step_;
  point.seconds = seconds_;
  point.train_loss = Ratio(since_point_.loss_sum, since_point_.num_samples);
  point.train_accuracy = Ratio(static_cast<double>(since_point_.num_correct),
                               since_point_.num_samples);
  // All workers send and receive the same amount.
  const std::vector<TensorReport> reports = context_.store.codecs().Report();
  // What worker 0 has is told.
  if (context_.store.group().rank() == 0) point.tensors = ToMetrics(reports);
  guard_news_.Tell(reports, step_, context_);
  point.wire_bytes =
      workers * (traffic.push_wire_bytes + traffic.pull_wire_bytes);
  if (context_.tensorboard != nullptr) {
    context_.tensorboard->Add(point, progress.samples_per_s);
  }
  summary_.points.push_back(point);
  since_point_ = {};
}

absl::Status Training::RunEpoch(int epoch, int64_t first_batch) {
  const TrainOptions& options = context_.options;
  EpochBatches mine = Deal(epoch, first_batch);
  num_batches_ = mine.num_steps;
  reader_.Start(epoch, std::move(mine.batches));
  for (int64_t batch = first_batch; batch < num_batches_; ++batch) {
    const float rate = LearningRate(
        options, {.epoch = epoch, .batch = batch, .num_batches = num_batches_});
    const int scale = options.lr_scaling == "linear" ? num_contributors_ : 1;
    RETURN_IF_ERROR(SetRate(rate * static_cast<float>(scale)));
    exchange_.set_optimizer(optimizer_);
    const bool is_last = batch + 1 == num_batches_;
    const bool is_shown = (batch + 1) % options.display_batches == 0 || is_last;
    const bool is_saved = checkpoints_.IsDueAfterStep(step_ + 1);
    RETURN_IF_ERROR(backups_.Before(is_last || is_saved));
    RETURN_IF_ERROR(RunStep(is_shown || is_saved || backups_.is_on(), is_last));
    if (is_shown) Report(epoch, batch + 1);
    ShowBetween(epoch, batch + 1, -1);  // where that was a while ago
    if (!is_saved) {
      ASSIGN_OR_RETURN(const int64_t left_out, backups_.After());
      batch += left_out;
      step_ += left_out;
      if (backups_.is_on() && !is_last) continue;  // others may be elsewhere
      RETURN_IF_ERROR(checkpoints_.AskAfterStep(step_));
      continue;
    }
    if (alone_.has_value()) RETURN_IF_ERROR(alone_->FinishBegun());
    RETURN_IF_ERROR(Save(epoch, batch + 1));
  }
  if (context_.store.traits().is_async) {
    RETURN_IF_ERROR(exchange_.PullWeights());
  }
  const bool is_evaluated =
      (epoch + 1) % options.eval_every == 0 || epoch + 1 == options.num_epochs;
  if (is_evaluated && !options.benchmark) RETURN_IF_ERROR(Evaluate(epoch));
  if (!checkpoints_.IsDueAfterEpoch(epoch)) return absl::OkStatus();
  return Save(epoch + 1, 0);
}

absl::Status Training::Evaluate(int epoch) {
  RETURN_IF_ERROR(AgreeOnStatistics());
  ASSIGN_OR_RETURN(
      const BatchResult total,
      EvaluateTogether(
          context_.store.group(), *replicas_[0].network, data_.test,
          [&](double share) { ShowBetween(epoch, num_batches_, share); }));
  summary_.accuracy =
      Ratio(static_cast<double>(total.num_correct), total.num_samples);
  summary_.loss = Ratio(total.loss_sum, total.num_samples);
  if (context_.tensorboard != nullptr) {
    context_.tensorboard->AddTest(step_, summary_.accuracy, summary_.loss);
  }
  if (!summary_.points.empty()) {
    summary_.points.back().test_accuracy = summary_.accuracy;
    summary_.points.back().test_loss = summary_.loss;
  }
  context_.observer.OnNotice(absl::StrFormat(
      "Epoch[%d] Validation-accuracy=%.6f", epoch, summary_.accuracy));
  return absl::OkStatus();
}

absl::StatusOr<RunSummary> Training::Run() {
  RETURN_IF_ERROR(Init());
  const TrainOptions& options = context_.options;
  // Time left is counted from here.
  ShowBetween(first_epoch_, first_batch_, -1);
  for (int epoch = first_epoch_; epoch < options.num_epochs; ++epoch) {
    RETURN_IF_ERROR(RunEpoch(epoch, epoch == first_epoch_ ? first_batch_ : 0));
  }
  // A run that was resumed at its end has only this to do.
  if (first_epoch_ >= options.num_epochs && !options.benchmark) {
    RETURN_IF_ERROR(Evaluate(options.num_epochs - 1));
  }
  if (num_skipped_ > 0) {
    context_.Warn(absl::StrCat(num_skipped_,
                               " steps were skipped: non-finite gradients"));
  }
  totals_.traffic = Traffic();
  totals_.num_left_out = backups_.num_left_out();
  totals_.shares = watch_.mine();
  RETURN_IF_ERROR(AgreeOnStatistics());
  totals_.weights_sha256 = DigestOf(*replicas_[0].network);
  RETURN_IF_ERROR(replicas_[0].network->status());
  summary_.steps = step_;
  summary_.seconds = seconds_;
  summary_.samples_per_s =
      static_cast<double>(step_ * SamplesPerStep()) / std::max(seconds_, 1e-9);
  RETURN_IF_ERROR(FillSummary(context_, totals_, summary_));
  return summary_;
}

}  // namespace

absl::StatusOr<RunSummary> TrainNetwork(RunContext& context) {
  const TrainOptions& options = context.options;
  RETURN_IF_ERROR(LoadForTraining(options, context.seed, context.data));
  ASSIGN_OR_RETURN(const Framework* framework, LoadFramework());
  ASSIGN_OR_RETURN(NetworkSpec spec, RequestedSpec(options));
  if (!options.benchmark) {
    Fit(context.data->train, spec);
    RETURN_IF_ERROR(AgreeOnData(context.store.group(), *context.data));
  }
  spec.seed = context.seed;
  std::vector<Replica> replicas(static_cast<size_t>(options.devices));
  for (size_t i = 0; i < replicas.size(); ++i) {
    replicas[i].batch_size = options.device_batches[i];
    replicas[i].has_muon = options.has_muon;
    ASSIGN_OR_RETURN(spec.device, ChooseDevice(context, static_cast<int>(i)));
    ASSIGN_OR_RETURN(replicas[i].network, framework->make_network(spec));
  }
  if (options.has_muon && options.local_steps == 0) {
    RETURN_IF_ERROR(AgreeOnProducts(context));
  }
  if (spec.dtype == Dtype::kFloat16 && spec.device.kind == DeviceKind::kCpu) {
    context.Warn(
        "--dtype float16: a CPU computes in float32 and rounds to float16; "
        "that is the range and the precision of float16, not its speed");
  }
  ASSIGN_OR_RETURN(Injection injection, ParseInjection(options.inject));
  return Training(context, std::move(replicas), std::move(injection)).Run();
}

}  // namespace telegrad
