#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kvstore/metrics.h"

namespace CLI {
class App;
}

namespace telegrad {

// --metrics-port and --metrics-file.
struct MetricsFlags {
  int port = MetricsOutlet::kNoPort;
  std::string file;
  std::string slurm_job_id;  // the environment's
};

void AddMetricsFlags(CLI::App& app, MetricsFlags& flags);
// InvalidArgument: the file's folder is none.
absl::Status CheckMetricsFlags(const MetricsFlags& flags);

// The process's, and says where they are; null where none are wanted. `name`
// tells processes of one command apart: the file "job.prom" of "worker/0" is
// "job-worker0.prom". The port is on loopback unless there is a secret, then at
// `bind_address`. Errors carry exit codes.
absl::StatusOr<std::unique_ptr<ProcessMetrics>> StartMetrics(
    const MetricsFlags& flags, const std::string& name,
    const std::string& bind_address, bool has_secret);

inline Metrics* RegistryOf(const std::unique_ptr<ProcessMetrics>& metrics) {
  return metrics == nullptr ? nullptr : &metrics->registry();
}

}  // namespace telegrad
