#include "perf/network/push_pull_batch.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "perf/network/launch.h"
#include "perf/network/push_pull_memory.h"
#include "topology/profiles.h"

namespace telegrad::perf {

absl::StatusOr<std::vector<Batch>> BatchesOf(const PushPullOptions& options) {
  std::vector<Batch> batches;
  if (options.profile.empty()) {
    Key key = 0;
    for (const size_t bytes : options.network.sizes) {
      batches.push_back(
          {.first = key++, .counts = {std::max<size_t>(1, bytes / 4)}});
    }
    return batches;
  }
  ASSIGN_OR_RETURN(const GradientProfile profile,
                   LoadGradientProfile(options.profile));
  Batch batch{.profile = options.profile};
  for (const ProfileTensor& tensor : profile.tensors) {
    batch.counts.push_back(static_cast<size_t>(tensor.num_elems));
    batch.names.push_back(tensor.name);
  }
  batches.push_back(std::move(batch));
  return batches;
}

std::vector<TensorSpec> TensorsOf(const std::vector<Batch>& batches) {
  std::vector<TensorSpec> tensors;
  for (const Batch& batch : batches) {
    for (size_t i = 0; i < batch.counts.size(); ++i) {
      tensors.push_back({batch.names.empty() ? absl::StrCat("t", tensors.size())
                                             : batch.names[i],
                         batch.counts[i]});
    }
  }
  return tensors;
}

absl::Status CheckMemoryOf(const PushPullOptions& options) {
  ASSIGN_OR_RETURN(const std::vector<Batch> batches, BatchesOf(options));
  ASSIGN_OR_RETURN(const bool starts_all, StartsAll(options.network));
  if (!starts_all) return absl::OkStatus();
  const std::optional<uint64_t> available = AvailableMemoryBytes();
  if (!available.has_value()) return absl::OkStatus();
  PushPullSizes sizes = {.workers = options.num_gradients(),
                         .compresses = options.type != "none",
                         .checks = options.network.checks,
                         .replays = options.type != "none" &&
                                    options.type != "fp16" &&
                                    options.type != "bf16"};
  for (const Batch& batch : batches) {
    sizes.all_elems += batch.num_elems();
    sizes.largest_batch_elems =
        std::max(sizes.largest_batch_elems, batch.num_elems());
    for (const size_t count : batch.counts) {
      sizes.largest_tensor_elems = std::max(sizes.largest_tensor_elems, count);
    }
  }
  const absl::Status status = CheckMemory(sizes, *available);
  if (status.ok() || !options.overcommits) return status;
  LogWarning(status.message());
  return absl::OkStatus();
}

}  // namespace telegrad::perf
