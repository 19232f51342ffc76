#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "kvstore/job/path/job_options.h"

namespace telegrad {

struct ServerOptions {
  JobOptions job = {};
  int num_threads = 1;  // threads that sum, besides the transport's thread
  int64_t max_model_bytes = int64_t{64} << 30;
};

// Joins as a server and serves until all workers have left; where the job goes
// on without members that have died, it joins again. Blocks.
absl::Status RunServer(const ServerOptions& options);

// A value for JobOptions::part: a server that sums with `num_threads` threads.
std::function<absl::Status(const JobOptions&)> HostPart(int num_threads);

}  // namespace telegrad
