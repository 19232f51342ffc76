#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kvstore/job/path/worker_group.h"
#include "trainer/data/dataset.h"
#include "trainer/networks/network.h"
#include "trainer/run/gradient_exchange.h"

namespace telegrad {

// All workers' payloads by rank, of whatever sizes: WorkerGroup::Gather in
// pieces.
absl::StatusOr<std::vector<std::string>> GatherLarge(WorkerGroup& group,
                                                     absl::string_view name,
                                                     absl::string_view payload);

void Add(const BatchResult& batch, BatchResult& sum);

// All workers evaluate `test`: each takes a share, all learn the whole result.
// `tell` hears how much of its own share is done, after each batch.
absl::StatusOr<BatchResult> EvaluateTogether(
    WorkerGroup& group, Network& network, const Dataset& test,
    const std::function<void(double)>& tell = {});

// Gives all networks of all workers the same buffers: the mean over them, in
// the order of ranks and devices, or those of worker 0's first device. Talks to
// nobody where the network has none.
absl::Status AgreeOnBuffers(WorkerGroup& group, std::span<Replica> replicas,
                            bool from_first_worker);

// The digest of the weights and buffers.
std::string DigestOf(Network& network);

// All workers call it: exit code 31 where they have read different samples, by
// number and labels.
absl::Status AgreeOnData(WorkerGroup& group, const DatasetPair& data);

}  // namespace telegrad
