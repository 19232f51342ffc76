#include "trainer/run/worker_run.h"

#include <algorithm>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/log.h"
#include "base/process_memory.h"
#include "base/status_macros.h"
#include "kvstore/job/control/fatal_event.h"
#include "kvstore/server.h"
#include "trainer/data/dataset.h"
#include "trainer/flags/profile.h"
#include "trainer/flags/training_flags.h"
#include "trainer/networks/framework.h"

namespace telegrad {
namespace {

// Worker 0 speaks for all; the ranks are known once the store has joined.
class FirstWorkerObserver : public TrainObserver {
 public:
  FirstWorkerObserver(KVStore& store, bool verbose, TrainObserver& observer)
      : store_(store), verbose_(verbose), observer_(observer) {}
  void OnProgress(const Progress::State& state) override {
    if (store_.group().rank() == 0) observer_.OnProgress(state);
  }
  void OnLine(const std::string& text) override {
    if (verbose_) OnNotice(text);
  }
  void OnNotice(const std::string& text) override {
    if (store_.group().rank() == 0) observer_.OnLine(text);
  }
  void OnSummary(const RunSummary& summary) override {
    if (store_.group().rank() == 0) observer_.OnSummary(summary);
  }

 private:
  KVStore& store_;
  const bool verbose_;
  TrainObserver& observer_;
};

// As `run` returns, so that the others are told of what it throws.
template <typename Run>
auto WithMemory(const Run& run) -> decltype(run()) {
  try {
    return run();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("no memory for this training");
  }
}

absl::StatusOr<RunSummary> RunTraining(RunContext& context) {
  return WithMemory([&] {
    return IsProfile(context.options.network) ? BenchmarkProfile(context)
                                              : TrainNetwork(context);
  });
}

// What a worker keeps when others die and it goes on.
struct Life {
  TrainOptions options;
  std::optional<int> seat = {};  // to join again with, if it goes on
  std::optional<Outlived> outlived = {};
  std::optional<DatasetPair> data = {};
  std::vector<std::string> warnings = {};
};

void End(WorkerGroup& group, const absl::Status& why, Life& life) {
  if (life.options.elastic.min > 0) {
    life.seat = group.FailOrGoOn(why);
  } else {
    group.Fail(why);
  }
}

// How it went; `seat` is set where others have died on the way.
absl::Status Conclude(const absl::Status& status, const RunContext& context,
                      Life& life) {
  End(context.store.group(), status, life);
  if (!life.seat.has_value()) return status;
  life.warnings = context.warnings;
  life.outlived = context.outlived;  // died before a step was done
  if (life.outlived.has_value()) {
    absl::StrAppend(&life.outlived->what, "; ", status.message());
  } else {
    life.outlived = {.what = std::string(status.message()),
                     .num_steps = context.num_steps,
                     .at = context.stepped_at};
  }
  return status;
}

absl::StatusOr<std::unique_ptr<WorkerGroup>> JoinAs(const StoreTraits& traits,
                                                    const DistOptions& dist,
                                                    Life& life) {
  if (!traits.has_workers) return MakeSoloGroup(dist);
  absl::StatusOr<std::unique_ptr<WorkerGroup>> group = JoinWorkers(dist);
  if (!group.ok()) {
    life.seat = SeatOf(group.status());
  } else if ((*group)->membership().epoch > 1) {
    TrainOptions& options = life.options;
    options.may_begin_anew |= !options.resume;
    options.resume = true;
    if (options.reshard_residuals.empty()) options.reshard_residuals = "sum";
    if (!life.outlived.has_value()) {
      LogInfo("came in as ", ToString((*group)->id()), " of ",
              (*group)->num_workers(), " workers, in epoch ",
              (*group)->membership().epoch);
      life.outlived = {
          .what = absl::StrCat(ToString((*group)->id()), " has joined the job"),
          .at = Clock::now(),
          .is_newcomer = true};
    }
  }
  return group;
}

// Until its end, or a death of others.
absl::Status RunOnce(const Setting& setting, uint64_t seed, DistOptions dist,
                     MachineDetection& detection, TrainObserver& observer,
                     Life& life) {
  const TrainOptions& options = life.options;
  ASSIGN_OR_RETURN(const StoreTraits traits, FindStoreType(options.kv_store));
  Timeline notes;
  StepTimeline timeline(notes);
  dist.timeline = &notes;
  if (traits.hosts_parts) dist.part = HostPart(dist.num_threads);
  ASSIGN_OR_RETURN(const std::unique_ptr<WorkerGroup> group,
                   JoinAs(traits, dist, life));
  absl::StatusOr<std::unique_ptr<KVStore>> made =
      MakeKVStore(options.kv_store, dist, group.get());
  if (!made.ok()) {
    End(*group, made.status(), life);
    return made.status();
  }
  const std::unique_ptr<KVStore> store = *std::move(made);
  RETURN_IF_ERROR(store->SetCompression(setting.compression));
  StoreMetrics metrics(*store);
  FirstWorkerObserver first(*store, options.verbose, observer);
  RunContext context{.options = options,
                     .setting = setting,
                     .seed = seed,
                     .store = *store,
                     .observer = first,
                     .detection = detection,
                     .timeline = timeline,
                     .metrics = metrics,
                     .data = life.data,
                     .warnings = life.warnings,
                     .outlived = life.outlived};
  std::unique_ptr<TensorBoard> tensorboard;
  const std::string events =
      TracePrefix(options.laboratory.tensorboard, setting.name, seed);
  if (!events.empty() && store->group().rank() == 0) {
    ASSIGN_OR_RETURN(tensorboard, TensorBoard::Open(events));
    context.tensorboard = tensorboard.get();
  }
  for (const std::string& why : {options.store_why, setting.allow_why}) {
    if (why.empty()) continue;
    first.OnNotice(why);
    context.decisions.push_back(why);
  }
  absl::StatusOr<RunSummary> summary = RunTraining(context);
  if (!summary.ok()) return Conclude(summary.status(), context, life);
  first.OnSummary(*summary);
  store->Close();
  return absl::OkStatus();
}

}  // namespace

void RunContext::AfterStep(int64_t step) {
  const TimePoint now = Clock::now();
  if (outlived.has_value()) {
    Warn(absl::StrFormat(
        "%s; %d worker%s went on from step %d, %.2f s %s, and did %d of them "
        "once more",
        outlived->what, store.group().num_workers(),
        store.group().num_workers() == 1 ? "" : "s", step - 1,
        ToSeconds(now - outlived->at),
        outlived->is_newcomer ? "after it came in" : "between two steps",
        std::max<int64_t>(0, outlived->num_steps - step + 1)));
    outlived.reset();
  }
  num_steps = step;
  stepped_at = now;
}

absl::Status RunAsWorker(const TrainOptions& options, const Setting& setting,
                         uint64_t seed, DistOptions dist,
                         MachineDetection& detection, TrainObserver& observer) {
  Life life{.options = options};
  if (options.elastic.min > 0 && !IsProfile(options.network)) {
    // The others stand still from when a newcomer is in until it has these.
    // What fails will once more, where they hear of it.
    WithMemory([&] {
      return LoadForTraining(options, seed, life.data);
    }).IgnoreError();
  }
  for (;;) {
    const absl::Status status =
        RunOnce(setting, seed, dist, detection, observer, life);
    if (options.elastic.min == 0 || !life.seat.has_value()) return status;
    dist.wanted_rank = *std::exchange(life.seat, std::nullopt);
    ReturnFreeMemory();
  }
}

absl::Status LoadForTraining(const TrainOptions& options, uint64_t seed,
                             std::optional<DatasetPair>& data) {
  ASSIGN_OR_RETURN(const Framework* framework, LoadFramework());
  RETURN_IF_ERROR(framework->configure(1, options.tf32));
  if (data.has_value()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const NetworkSpec spec, RequestedSpec(options));
  if (!options.benchmark) {
    ASSIGN_OR_RETURN(data,
                     LoadDataset(options.data, RequestedData(options, spec)));
    return absl::OkStatus();
  }
  const auto samples = static_cast<size_t>(
      NumNoiseSamples(options, options.workers * options.devices));
  data = DatasetPair{.train = MakeNoise(SamplesOf(spec), seed, samples)};
  return absl::OkStatus();
}

}  // namespace telegrad
