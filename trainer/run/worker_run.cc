#include "trainer/run/worker_run.h"

#include <new>

#include "base/status_macros.h"
#include "kvstore/server.h"
#include "trainer/flags/profile.h"

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

absl::StatusOr<RunSummary> RunTraining(RunContext& context) {
  try {
    return IsProfile(context.options.network) ? BenchmarkProfile(context)
                                              : TrainNetwork(context);
  } catch (const std::bad_alloc&) {  // so that the others are told
    return absl::ResourceExhaustedError("no memory for this training");
  }
}

}  // namespace

absl::Status RunAsWorker(const TrainOptions& options, const Setting& setting,
                         uint64_t seed, DistOptions dist,
                         MachineDetection& detection, TrainObserver& observer) {
  ASSIGN_OR_RETURN(const StoreTraits traits, FindStoreType(options.kv_store));
  Timeline notes;
  StepTimeline timeline(notes);
  dist.timeline = &notes;
  if (traits.hosts_parts) dist.part = HostPart(dist.num_threads);
  std::unique_ptr<WorkerGroup> group;
  if (traits.has_workers) {
    ASSIGN_OR_RETURN(group, JoinWorkers(dist));
  } else {
    group = MakeSoloGroup(dist);
  }
  absl::StatusOr<std::unique_ptr<KVStore>> made =
      MakeKVStore(options.kv_store, dist, group.get());
  if (!made.ok()) {
    group->Fail(made.status());
    return made.status();
  }
  const std::unique_ptr<KVStore> store = *std::move(made);
  RETURN_IF_ERROR(store->SetCompression(setting.compression));
  FirstWorkerObserver first(*store, options.verbose, observer);
  RunContext context{.options = options,
                     .setting = setting,
                     .seed = seed,
                     .store = *store,
                     .observer = first,
                     .detection = detection,
                     .timeline = timeline};
  for (const std::string& why : {options.store_why, setting.allow_why}) {
    if (why.empty()) continue;
    first.OnNotice(why);
    context.decisions.push_back(why);
  }
  absl::StatusOr<RunSummary> summary = RunTraining(context);
  if (!summary.ok()) {
    store->group().Fail(summary.status());
    return summary.status();
  }
  first.OnSummary(*summary);
  store->Close();
  return absl::OkStatus();
}

}  // namespace telegrad
