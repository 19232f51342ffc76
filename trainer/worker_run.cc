#include "trainer/worker_run.h"

#include "base/status_macros.h"
#include "trainer/profile.h"

namespace telegrad {
namespace {

// Worker 0 speaks for all; the ranks are known once the store has joined.
class FirstWorkerObserver : public TrainObserver {
 public:
  FirstWorkerObserver(const KVStore& store, TrainObserver& observer)
      : store_(store), observer_(observer) {}
  void OnProgress(const Progress::State& state) override {
    if (store_.rank() == 0) observer_.OnProgress(state);
  }
  void OnLine(const std::string& text) override {
    if (store_.rank() == 0) observer_.OnLine(text);
  }
  void OnSummary(const RunSummary& summary) override {
    if (store_.rank() == 0) observer_.OnSummary(summary);
  }

 private:
  const KVStore& store_;
  TrainObserver& observer_;
};

}  // namespace

absl::Status RunAsWorker(const TrainOptions& options, const Setting& setting,
                         uint64_t seed, const DistOptions& dist,
                         MachineDetection& detection, TrainObserver& observer) {
  ASSIGN_OR_RETURN(const std::unique_ptr<KVStore> store,
                   MakeKVStore(options.kv_store, dist));
  RETURN_IF_ERROR(store->SetCompression(setting.compression));
  FirstWorkerObserver first(*store, observer);
  RunContext context{.options = options,
                     .setting = setting,
                     .seed = seed,
                     .store = *store,
                     .observer = first,
                     .detection = detection};
  absl::StatusOr<RunSummary> summary = IsProfile(options.network)
                                           ? BenchmarkProfile(context)
                                           : TrainNetwork(context);
  if (!summary.ok()) {
    store->Fail(summary.status());
    return summary.status();
  }
  first.OnSummary(*summary);
  store->Close();
  return absl::OkStatus();
}

}  // namespace telegrad
