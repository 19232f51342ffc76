#pragma once

#include <cstdint>
#include <memory>
#include <thread>

#include "absl/status/status.h"
#include "kvstore/job/path/job_options.h"

namespace telegrad {

// A server in a thread of a worker's process, as the workers of a job without
// processes for servers have it. One thread uses it.
class HostedPart {
 public:
  // Runs `job.part` with the worker's own options.
  explicit HostedPart(const JobOptions& job);
  // Returns when all workers have left or the job has failed.
  ~HostedPart();

  // Ends it, where the worker could not join; what it ended with.
  absl::Status Cancel(const absl::Status& why);

 private:
  void Join();

  const std::shared_ptr<Cancellation> jobs_;  // may be null
  const std::shared_ptr<Cancellation> cancellation_;
  int64_t cancel_id_ = 0;
  absl::Status status_;  // the thread's until it has ended
  std::thread thread_;
};

}  // namespace telegrad
