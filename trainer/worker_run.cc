#include "trainer/worker_run.h"

#include "base/status_macros.h"
#include "trainer/profile.h"

namespace telegrad {

absl::Status RunAsWorker(const TrainOptions& options, const Setting& setting,
                         uint64_t seed, const DistOptions& dist,
                         TrainObserver& observer) {
  ASSIGN_OR_RETURN(const std::unique_ptr<KVStore> store,
                   MakeKVStore(options.kv_store, dist));
  RETURN_IF_ERROR(store->SetCompression(setting.compression));
  RunContext context{.options = options,
                     .setting = setting,
                     .seed = seed,
                     .store = *store,
                     .observer = observer};
  absl::StatusOr<RunSummary> summary = IsProfile(options.network)
                                           ? BenchmarkProfile(context)
                                           : TrainNetwork(context);
  if (!summary.ok()) {
    store->Fail(summary.status());
    return summary.status();
  }
  if (store->rank() == 0) observer.OnSummary(*summary);
  store->Close();
  return absl::OkStatus();
}

}  // namespace telegrad
