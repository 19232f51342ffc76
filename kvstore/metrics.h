#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "base/metrics.h"
#include "base/metrics_endpoint.h"
#include "base/mutex.h"
#include "kvstore/job/control/metric_names.h"

// The numbers of a job's members by the names of docs/numbers.md.
namespace telegrad {

class KVStore;
struct Plan;

// Labels of all series of a process: "node", and "slurm_job_id" where it is not
// empty.
MetricLabels CommonLabels(const char* slurm_job_id);

// How a member's data goes.
void CollectPlan(const Plan& plan, MetricsPage& page);
// What every process has.
void CollectProcess(MetricsPage& page);

// A process's registry, and where it is read.
class ProcessMetrics {
 public:
  // Errors are those of MetricsEndpoint::Start.
  static absl::StatusOr<std::unique_ptr<ProcessMetrics>> Start(
      const MetricsOutlet& outlet, MetricLabels labels);

  Metrics& registry() { return registry_; }
  // "127.0.0.1:9108"; empty: no port was wanted.
  std::string address() const {
    return endpoint_ == nullptr ? "" : endpoint_->address();
  }

 private:
  explicit ProcessMetrics(MetricLabels labels) : registry_(std::move(labels)) {}

  Metrics registry_;
  const Metrics::Registration process_ = registry_.Add(&CollectProcess);
  std::unique_ptr<MetricsEndpoint> endpoint_;
};

// A worker's numbers while it lives, the store's among them.
class StoreMetrics {
 public:
  // On the pages of JobOptions::metrics of its group, if any; outlives it.
  explicit StoreMetrics(KVStore& store);

  // What the store does not know; any thread.
  void AfterStep(double step_s, double wait_s);
  void CountStraggler(const std::string& who, const std::string& cause);

 private:
  void Collect(MetricsPage& page) const;

  static constexpr size_t kMostStragglers = 20;  // series
  KVStore& store_;
  std::atomic<int64_t> num_steps_{0};
  std::atomic<double> step_s_{0};
  std::atomic<double> wait_s_{0};
  mutable Mutex mutex_;
  std::map<std::pair<std::string, std::string>, int64_t> stragglers_
      ABSL_GUARDED_BY(mutex_);
  Metrics::Registration registration_;  // ends first
};

}  // namespace telegrad
