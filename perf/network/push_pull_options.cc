#include "perf/network/push_pull_options.h"

#include <CLI/CLI.hpp>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/of_flag.h"
#include "base/status_macros.h"
#include "compression/codec_spec.h"
#include "kvstore/kvstore.h"
#include "kvstore/tuning/job_plan.h"
#include "perf/network/launch.h"
#include "perf/network/push_pull_batch.h"
#include "perf/network/sizes.h"

namespace telegrad::perf {
namespace {

// What the store cannot do.
absl::Status CheckStore(const PushPullOptions& options) {
  const StoreTraits& traits = options.traits;
  const auto refuse = [&](const char* why) {
    return absl::InvalidArgumentError(
        absl::StrCat("--kv-store ", options.kv_store, why));
  };
  if (!traits.has_workers && options.workers > 1) {
    return refuse(
        " sums within one process: leave --workers out, and say how many "
        "gradients by --devices");
  }
  if ((!traits.has_workers || traits.hosts_parts) && options.servers > 0) {
    return refuse(" has no servers: leave --servers out, or 0");
  }
  if (traits.is_async && options.network.checks) {
    return refuse(" has weights and no sums to check: leave --check out");
  }
  if (!traits.is_async && options.max_staleness != kAnyStaleness) {
    return refuse(
        " lets nobody be ahead: --max-staleness is for dist_async, leave it "
        "out");
  }
  const bool is_on_gpu = options.network.memory != "host";
  if (traits.needs_gpus && !is_on_gpu) {
    return refuse(" adds what lies on GPUs: give --memory cuda");
  }
  if (is_on_gpu && options.devices > 1 && traits.has_workers) {
    return refuse(
        " takes one GPU of each worker: leave --devices out, or take --memory "
        "host");
  }
  return CheckStoreType(options.kv_store, options.devices);
}

}  // namespace

void AddPushPullFlags(CLI::App& app, PushPullOptions& options) {
  Last(app.add_option("--workers", options.workers, "ranks that push and pull")
           ->check(CLI::Range(1, 512))
           ->default_str("2, or as many as a launcher has started"));
  app.add_option("--kv-store", options.kv_store,
                 "who sums: dist_sync: servers; allreduce: the workers; local, "
                 "device, nccl: one process; dist_async: servers, which step "
                 "weights")
      ->capture_default_str();
  app.add_option(
         "--max-staleness", options.max_staleness,
         "of dist_async: no worker is more rounds ahead of the slowest; "
         "without it any")
      ->check(CLI::Range(int64_t{0}, kMaxStaleness));
  app.add_option("--devices", options.devices,
                 "whose gradients each worker adds first; of one process, "
                 "which are all there are")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--tier1", options.tier_one,
                 "whether the workers of a host sum first, so that one of them "
                 "pushes: auto, off, on")
      ->check(CLI::IsMember({"auto", "off", "on"}))
      ->capture_default_str();
  app.add_option("--gdr", options.gdr,
                 "of --memory cuda, whether network cards read and write it "
                 "(GPUDirect RDMA): auto, by the plan; on; off")
      ->check(CLI::IsMember({"auto", "on", "off"}))
      ->capture_default_str();
  Last(app.add_option("--servers", options.servers,
                      "ranks that sum; 0: a process beside each worker")
           ->check(CLI::Range(0, 512))
           ->default_str("0 where several commands or a launcher start "
                         "the ranks, else 1"));
  app.add_option("--gc-type", options.type,
                 "the codec, with its options: none, 2bit, topk:0.01")
      ->capture_default_str();
  app.add_option("--gc-threshold", options.threshold, "auto, 0.5, 2rms")
      ->capture_default_str();
  app.add_option("--gc-reply", options.reply,
                 "what servers answer: auto, sum, reencode, dense")
      ->capture_default_str();
  app.add_option("--gc-packing", options.packing,
                 "of 2bit's codes: plain, radix, auto")
      ->capture_default_str();
  app.add_option("--profile", options.profile,
                 "instead of sizes all gradients of a network at once: vgg16, "
                 "alexnet, resnet50, resnet152, inceptionv3 or FILE.csv");
  app.add_option("--chunk", options.chunk,
                 "elements per chunk: 64K, 524288; auto: the planner's, tensor "
                 "by tensor, which for some codecs are other bits")
      ->capture_default_str();
  app.add_flag("--overcommit", options.overcommits,
               "begin where less memory is available than it needs, as on "
               "virtual machines that get more");
  app.add_option("--threads", options.threads, "of the codec, in each rank")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
}

absl::Status SettlePlan(const CLI::App& app, PushPullOptions& options) {
  ASSIGN_OR_RETURN(const CodecSpec spec, OfFlag("--gc-type", options.type,
                                                ParseCodecSpec(options.type)));
  if (app.count("--gc-threshold") > 0 &&
      options.network.path.given == nullptr &&
      !spec.codec->traits().needs_threshold) {
    return absl::InvalidArgumentError(
        absl::StrCat("--gc-threshold has no effect: --gc-type ", options.type,
                     " has no threshold"));
  }
  options.has_auto_chunk = options.chunk == "auto";
  if (!options.has_auto_chunk) {
    const auto sizes = ParseSizes(options.chunk);
    if (!sizes.ok() || sizes->size() != 1 || sizes->front() < 1024 ||
        sizes->front() > (size_t{1} << 24)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--chunk ", options.chunk, ": it takes 1K to 16M elements, or auto"));
    }
    options.chunk_elems = sizes->front();
  }
  if (options.network.path.given == nullptr) return absl::OkStatus();
  const GivenPlan& given = *options.network.path.given;
  for (const TensorPlan& each : given.plan.tensors) {
    const bool is_other_chunk =
        app.count("--chunk") > 0 && !options.has_auto_chunk &&
        4 * static_cast<int64_t>(options.chunk_elems) != each.chunk_bytes;
    const bool is_other_codec = app.count("--gc-type") > 0 &&
                                each.codec != "none" &&
                                each.codec != options.type;
    if (!is_other_chunk && !is_other_codec) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(given.by, " has ", each.codec, " in chunks of ",
                     each.chunk_bytes / 4, " elements for ", each.name, ", ",
                     is_other_chunk ? "--chunk" : "--gc-type",
                     " says otherwise; leave one of them out"));
  }
  options.has_auto_chunk = true;
  options.type = given.plan.codec;
  ASSIGN_OR_RETURN(const std::vector<Batch> batches, BatchesOf(options));
  const absl::Status fits =
      CheckPlanFor(given, "this command (--profile)", TensorsOf(batches));
  return fits.ok() ? fits : absl::InvalidArgumentError(fits.message());
}

absl::Status SettleRoles(PushPullOptions& options,
                         std::vector<std::string>& words) {
  NetworkOptions& network = options.network;
  ASSIGN_OR_RETURN(options.traits, FindStoreType(options.kv_store));
  const StoreTraits& traits = options.traits;
  RETURN_IF_ERROR(CheckStore(options));
  if (traits.hosts_parts || !traits.has_workers) options.servers = 0;
  if (!traits.has_workers) options.workers = 1;
  int launched = 0;
  if (network.rank < 0 && !AreThreads(network)) {
    ASSIGN_OR_RETURN(const std::optional<Placement> placement, LaunchedAs());
    if (placement.has_value()) launched = placement->world_size;
  }
  if (options.servers < 0) {
    const bool is_one_place = network.rendezvous.empty() && launched == 0;
    const bool are_two_ranks = launched == 0 && options.workers == 1;
    options.servers =
        is_one_place || network.rank >= 0 || are_two_ranks ? 1 : 0;
  }
  if (options.workers == 0) {
    options.workers = launched > 0 ? launched - options.servers : 2;
  }
  const int leaders = options.workers + options.servers;
  if (options.workers < 1 || (launched > 0 && leaders != launched)) {
    return absl::InvalidArgumentError(
        absl::StrCat(launched, " ranks were launched for --workers ",
                     options.workers, " and --servers ", options.servers));
  }
  words.push_back(absl::StrCat("--workers=", options.workers));
  words.push_back(absl::StrCat("--servers=", options.servers));
  network.has_companions =
      options.servers == 0 && traits.has_workers && !traits.hosts_parts;
  if (network.has_companions) options.servers = options.workers;
  network.ranks = options.workers + options.servers;
  return absl::OkStatus();
}

}  // namespace telegrad::perf
