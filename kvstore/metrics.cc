#include "kvstore/metrics.h"

#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/socket.h"
#include "base/status_macros.h"
#include "kvstore/job/path/data_path.h"
#include "kvstore/job/path/job_options.h"
#include "kvstore/kvstore.h"

namespace telegrad {
namespace {

constexpr size_t kMostText = 200;  // bytes of a reason in a label

// Bytes; 0: not known.
double FromStatus(const char* format) {
  std::FILE* file = std::fopen("/proc/self/status", "re");
  if (file == nullptr) return 0;
  char line[256];
  long kib = 0;
  while (std::fgets(line, sizeof(line), file) != nullptr) {
    if (std::sscanf(line, format, &kib) == 1) break;
  }
  std::fclose(file);
  return 1024 * static_cast<double>(kib);
}

}  // namespace

MetricLabels CommonLabels(const char* slurm_job_id) {
  MetricLabels labels = {{"node", OwnHostName()}};
  if (slurm_job_id != nullptr && *slurm_job_id != 0) {
    labels.emplace_back("slurm_job_id", slurm_job_id);
  }
  return labels;
}

void CollectProcess(MetricsPage& page) {
  page.Add(metric::kMemory, FromStatus("VmRSS: %ld kB"), {{"kind", "now"}});
  page.Add(metric::kMemory, FromStatus("VmHWM: %ld kB"), {{"kind", "peak"}});
  page.Add(metric::kBuildInfo, 1, {{"version", TELEGRAD_VERSION}});
}

void CollectPlan(const Plan& plan, MetricsPage& page) {
  std::string why;
  for (const Decision& decision : plan.decisions) {
    absl::StrAppend(&why, why.empty() ? "" : "; ", Name(decision.what), " ",
                    decision.choice, ": ", decision.why);
  }
  if (why.size() > kMostText) why.resize(kMostText);
  page.Add(metric::kPlanInfo, 1,
           {{"digest", plan.digest},
            {"transport", plan.transport},
            {"codec", plan.codec},
            {"reason", why}});
}

// The bytes are those of no codec in particular, where nobody has added any.
void KVStore::Collect(MetricsPage& page) const {
  const StoreStats now = stats();
  const auto add = [&page](const Metric& metric, double value,
                           const MetricLabels& labels = {}) {
    page.Add(metric, value, labels);
  };
  if (!traits().has_workers) {
    const MetricLabels labels = {{"codec", "any"}};
    add(metric::kPushRaw, static_cast<double>(now.push_raw_bytes), labels);
    add(metric::kPushWire, static_cast<double>(now.push_wire_bytes), labels);
    add(metric::kPullRaw, static_cast<double>(now.pull_raw_bytes), labels);
    add(metric::kPullWire, static_cast<double>(now.pull_wire_bytes), labels);
  }
  add(metric::kFrames, static_cast<double>(now.num_frames));
  add(metric::kCodecSeconds, now.codec_s);
  add(metric::kNetworkSeconds, now.network_s);
  add(metric::kNonFinite, static_cast<double>(now.num_nonfinite));
  add(metric::kToDevice, static_cast<double>(now.to_device_bytes));
  add(metric::kFromDevice, static_cast<double>(now.from_device_bytes));
  if (traits().is_async || now.max_staleness > 0) {
    add(metric::kStaleness, static_cast<double>(now.max_staleness));
  }
}

StoreMetrics::StoreMetrics(KVStore& store)
    : store_(store),
      registration_(AddTo(store.group().options().metrics,
                          [this](MetricsPage& page) { Collect(page); })) {}

void StoreMetrics::AfterStep(double step_s, double wait_s) {
  num_steps_.fetch_add(1, std::memory_order_relaxed);
  step_s_.fetch_add(step_s, std::memory_order_relaxed);
  wait_s_.fetch_add(wait_s, std::memory_order_relaxed);
}

void StoreMetrics::CountStraggler(const std::string& who,
                                  const std::string& cause) {
  MutexLock lock(&mutex_);
  if (stragglers_.size() < kMostStragglers ||
      stragglers_.contains({who, cause}))
    ++stragglers_[{who, cause}];
}

void StoreMetrics::Collect(MetricsPage& page) const {
  const WorkerGroup& group = store_.group();
  page.SetScope({{"role", "worker"}, {"rank", absl::StrCat(group.rank())}});
  store_.Collect(page);  // first: it may add a label
  CollectJob(group.membership(), group.options().job_id, group.Left().size(),
             page);
  CollectPlan(group.data_path().plan, page);
  if (num_steps_ > 0) {
    page.Add(metric::kSteps, static_cast<double>(num_steps_));
    page.Add(metric::kStepSeconds, step_s_);
    page.Add(metric::kWaitSeconds, wait_s_);
  }
  {
    MutexLock lock(&mutex_);
    for (const auto& [name, count] : stragglers_) {
      page.Add(metric::kStragglers, static_cast<double>(count),
               {{"who", name.first}, {"cause", name.second}});
    }
  }
}

absl::StatusOr<std::unique_ptr<ProcessMetrics>> ProcessMetrics::Start(
    const MetricsOutlet& outlet, MetricLabels labels) {
  std::unique_ptr<ProcessMetrics> made(new ProcessMetrics(std::move(labels)));
  ASSIGN_OR_RETURN(made->endpoint_,
                   MetricsEndpoint::Start(made->registry_, outlet));
  return made;
}

}  // namespace telegrad
