#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvstore/dist_options.h"
#include "python/telegrad.h"

namespace telegrad::c {

// InvalidArgument names the field and what it takes.
// Of elastic_min and elastic_max, in a job that begins with so many workers.
absl::Status CheckLimits(const telegrad_job_options& options, int num_workers);
absl::Status CheckOptions(const telegrad_job_options& options);

// `bind`: the address that options.bind stands for.
absl::StatusOr<DistOptions> DistOptionsOf(const telegrad_job_options& options,
                                          const std::string& bind);

}  // namespace telegrad::c
