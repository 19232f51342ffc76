#include "perf/network/push_pull_join.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/of_flag.h"
#include "base/status_macros.h"
#include "kvstore/job/path/data_path.h"
#include "kvstore/server.h"
#include "kvstore/tuning/job_plan.h"
#include "kvstore/tuning/run_calibration.h"

namespace telegrad::perf {
namespace {

void EndProcess(const FatalEvent& event) {
  std::fprintf(stderr, "telegrad-perf: %s\n", event.message.c_str());
  std::_Exit(static_cast<int>(event.code));
}

// What the plan decides of tensors, if it does.
absl::Status PlanTensors(const PushPullOptions& options,
                         const CompressionConfig& compression, KVStore& store,
                         std::vector<TensorSpec>& tensors) {
  if (!options.has_auto_chunk) return absl::OkStatus();
  PlanRequest request{.profile = ProfileOf(options.profile, tensors),
                      .gc_type = "none"};
  request.aggregation.by = absl::StrCat("--kv-store ", options.kv_store);
  const bool is_given = options.network.path.given != nullptr;
  if (!is_given) {
    request.link_gbps = 8e-9 * options.network.link_spec.bytes_per_s;
    ASSIGN_OR_RETURN(request.tensor_codecs,
                     CodecsOf(tensors, compression, /*is_choice=*/false));
  }
  ASSIGN_OR_RETURN(const ExchangePlan exchange,
                   AgreeOnExchange(store.group(), AssumedCalibration(), request,
                                   /*is_used=*/true));
  GiveTensors(exchange.plan, is_given, tensors);
  if (store.group().rank() > 0) return absl::OkStatus();
  for (const Decision::Kind what :
       {Decision::Kind::kCodec, Decision::Kind::kChunk}) {
    SayDecision(exchange.plan, what);
  }
  return absl::OkStatus();
}

// Weights begin at 0 where the store steps them, by a rate that keeps them
// small.
absl::Status InitStore(const PushPullOptions& options, KVStore& store,
                       const std::vector<TensorSpec>& tensors) {
  if (!options.traits.is_async) return store.Init(tensors, {}).status();
  RETURN_IF_ERROR(store.SetOptimizer(
      {.update_on = UpdateOn::kServer, .sgd = {.learning_rate = 1e-6f}}));
  size_t largest = 0;
  for (const TensorSpec& each : tensors) {
    largest = std::max(largest, each.num_elems);
  }
  const Buffer zeros(4 * largest);
  std::vector<TensorView> values;
  for (const TensorSpec& each : tensors) {
    const Bytes value(zeros.view().data, 4 * each.num_elems);
    values.insert(values.end(), static_cast<size_t>(options.devices),
                  FloatTensor(value));
  }
  return store.Init(tensors, values).status();
}

}  // namespace

absl::StatusOr<CompressionConfig> CompressionOf(
    const PushPullOptions& options) {
  // A plan gives tensors their own.
  CompressionConfig compression{
      .type = options.network.path.given == nullptr ? options.type : "none"};
  ASSIGN_OR_RETURN(compression.threshold,
                   OfFlag("--gc-threshold", ParseThreshold(options.threshold)));
  ASSIGN_OR_RETURN(compression.reply,
                   OfFlag("--gc-reply", ParseReplyMode(options.reply)));
  ASSIGN_OR_RETURN(compression.packing,
                   OfFlag("--gc-packing", ParsePackingMode(options.packing)));
  return compression;
}

StoreOptions StoreOptionsOf(const PushPullOptions& options) {
  return {.num_threads = options.threads,
          .chunk_elems = options.chunk_elems,
          .num_devices = options.devices,
          .emulated_servers = options.traits.has_workers ? 0 : kServersOfOne,
          .max_staleness = options.max_staleness};
}

absl::Status SettleJob(const PushPullOptions& options, JobOptions& job) {
  if (options.network.memory != "host") {
    job.path.transport.memory = "host";  // but for what the plan says
    ASSIGN_OR_RETURN(job.path.gdr, ParseGdr(options.gdr));
  }
  ASSIGN_OR_RETURN(job.path.tier_one, ParseTierOne(options.tier_one));
  if (options.traits.hosts_parts) job.part = HostPart(options.threads);
  job.on_fatal = EndProcess;
  return absl::OkStatus();
}

absl::StatusOr<CompressionConfig> JoinAsWorker(
    const PushPullOptions& options, KVStore& store,
    std::vector<TensorSpec>& tensors) {
  ASSIGN_OR_RETURN(CompressionConfig compression, CompressionOf(options));
  const double rate = store.group().data_path().link_bytes_per_s();
  const PackingMode told = compression.packing;
  compression.packing = ChoosePacking(told, rate);
  RETURN_IF_ERROR(store.SetCompression(compression));
  RETURN_IF_ERROR(PlanTensors(options, compression, store, tensors));
  RETURN_IF_ERROR(InitStore(options, store, tensors));
  if (told == PackingMode::kAuto && store.group().rank() == 0) {
    std::fprintf(stderr, "packing %s: a link of %g Gb/s (0: unknown)\n",
                 ToString(compression.packing), 8e-9 * rate);
  }
  return compression;
}

}  // namespace telegrad::perf
