#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvstore/job/path/job_options.h"
#include "kvstore/kvstore.h"
#include "perf/network/push_pull_options.h"

// How ranks of pushpull become members of a job.
namespace telegrad::perf {

// Compression for tensors that a plan says nothing of.
absl::StatusOr<CompressionConfig> CompressionOf(const PushPullOptions& options);

// A store of one process cuts tensors as a job with one server does.
constexpr int kServersOfOne = 1;
StoreOptions StoreOptionsOf(const PushPullOptions& options);

// What pushpull's ranks have beside what those of all commands have.
absl::Status SettleJob(const PushPullOptions& options, JobOptions& job);

// Makes `tensors` known to the store, with what the plan decides; gives how the
// store compresses, as its link decides.
absl::StatusOr<CompressionConfig> JoinAsWorker(
    const PushPullOptions& options, KVStore& store,
    std::vector<TensorSpec>& tensors);

}  // namespace telegrad::perf
