#include "trainer/flags/given_plan.h"

#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kvstore/tuning/job_plan.h"

namespace telegrad {
namespace {

template <typename... Text>
absl::Status Refuse(const TrainOptions& options, const Text&... why) {
  return absl::InvalidArgumentError(absl::StrCat(
      options.path.given->by, " ", why..., "; leave one of them out"));
}

// Who sums, of the ways that stores have.
absl::Status SettleAggregation(TrainOptions& options) {
  const Aggregation way = options.path.given->plan.aggregation;
  if (way == Aggregation::kLocal) return absl::OkStatus();
  if (way != Aggregation::kColocatedServers &&
      way != Aggregation::kDedicatedServers) {
    return absl::InvalidArgumentError(absl::StrCat(
        options.path.given->by, " has aggregation ", Name(way),
        ", which no store does; plan with --aggregation co-located-servers or "
        "dedicated-servers"));
  }
  const bool is_beside = way == Aggregation::kColocatedServers;
  if (!options.given.contains("--kv-store") && !options.has_servers) {
    options.kv_store = is_beside ? "allreduce" : "dist_sync";
  }
  return absl::OkStatus();
}

absl::Status SettleChunk(TrainOptions& options) {
  for (const TensorPlan& each : options.path.given->plan.tensors) {
    const auto elems = static_cast<size_t>(each.chunk_bytes / 4);
    if (!options.given.contains("--chunk-elems") || options.has_auto_chunk ||
        elems == options.chunk_elems) {
      continue;
    }
    return Refuse(options, "has chunks of ", elems, " elements for ", each.name,
                  ", --chunk-elems is ", options.chunk_elems);
  }
  options.has_auto_chunk = true;
  return absl::OkStatus();
}

absl::Status SettleCodecs(TrainOptions& options) {
  for (const char* flag : {"--compare", "--gc-rule", "--gc-min-bytes",
                           "--gc-dense-1d", "--gc-allow"}) {
    if (!options.given.contains(flag)) continue;
    return Refuse(options, "says the codec of each tensor, so does ", flag);
  }
  Setting& setting = options.settings.front();
  std::set<std::string> codecs;
  for (const TensorPlan& each : options.path.given->plan.tensors) {
    if (each.codec != "none") codecs.insert(each.codec);
  }
  const std::string type = codecs.empty() ? "none" : *codecs.begin();
  const bool is_one = codecs.size() <= 1;
  if (options.given.contains("--gc-type") &&
      (setting.is_auto || !is_one || setting.compression.type != type)) {
    return Refuse(options, "has codec ", options.path.given->plan.codec,
                  ", --gc-type is ", setting.name);
  }
  setting.name = options.path.given->plan.codec;
  setting.compression.type = type;
  setting.compression.alternatives.clear();
  return absl::OkStatus();
}

}  // namespace

absl::Status SettleGivenPlan(TrainOptions& options) {
  if (options.path.given == nullptr) return absl::OkStatus();
  if (options.laboratory.explain) {
    return Refuse(options, "has decided what --explain would show");
  }
  RETURN_IF_ERROR(SettleAggregation(options));
  if (options.path.given->plan.tensors.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(SettleChunk(options));
  return SettleCodecs(options);
}

absl::Status CheckPlannedTensors(const TrainOptions& options,
                                 std::span<const TensorSpec> tensors) {
  if (options.path.given == nullptr) return absl::OkStatus();
  return CheckPlanFor(*options.path.given, options.network, tensors);
}

absl::Status CheckPlannedMachines(const TrainOptions& options,
                                  const std::optional<Placement>& placement) {
  if (options.path.given == nullptr || placement.has_value()) {
    return absl::OkStatus();
  }
  const Plan& plan = options.path.given->plan;
  if (plan.workers == 1 && plan.servers == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      options.path.given->by, " is for ", plan.workers,
      " machines with workers and ", plan.servers,
      " with servers only; this job is on one machine; plan with --workers 1"));
}

}  // namespace telegrad
