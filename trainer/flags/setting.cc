#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/of_flag.h"
#include "base/status_macros.h"
#include "base/units.h"
#include "compression/codec_spec.h"
#include "kvstore/kvstore.h"
#include "trainer/flags/check_gpus.h"
#include "trainer/flags/options.h"
#include "trainer/networks/gpus.h"

namespace telegrad {
namespace {

// Flags that change neither the network nor its samples: who steps, how, when.
std::vector<absl::string_view> RunFlags() {
  return absl::StrSplit(
      "adam-freeze-after clip-norm drop-slowest dtype early-step kv-store "
      "local-fragments local-steps lr lr-schedule max-staleness mom optimizer "
      "outer-lr outer-mom wd",
      ' ');
}

}  // namespace

absl::StatusOr<Setting> ParseSetting(absl::string_view text,
                                     const Setting& base) {
  Setting setting = base;
  setting.name = std::string(text);
  const std::vector<absl::string_view> parts = absl::StrSplit(text, '+');
  CompressionConfig& gc = setting.compression;
  setting.is_auto = parts[0] == "auto";
  if (!setting.is_auto) {
    gc.type = std::string(parts[0]);
    gc.alternatives.clear();
  }
  gc.starts_dense = setting.is_auto;
  RETURN_IF_ERROR(ParseCodecSpec(gc.type).status());
  for (size_t i = 1; i < parts.size(); ++i) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(parts[i], absl::MaxSplits('=', 1));
    if (pair.first == "reply") {
      ASSIGN_OR_RETURN(gc.reply, ParseReplyMode(pair.second));
    } else if (pair.first == "packing") {
      ASSIGN_OR_RETURN(gc.packing, ParsePackingMode(pair.second));
    } else if (pair.first == "threshold") {
      ASSIGN_OR_RETURN(gc.threshold, ParseThreshold(pair.second));
      setting.threshold = std::string(pair.second);
    } else if (pair.first == "momentum") {
      ASSIGN_OR_RETURN(setting.momentum, ParsePushMomentum(pair.second));
    } else if (pair.first == "normalize") {
      setting.normalize = pair.second == "on";
      if (pair.second != "on" && pair.second != "off") {
        return absl::InvalidArgumentError(absl::StrCat(
            "setting '", text, "': '", parts[i], "': there are on and off"));
      }
    } else if (pair.first == "update-on") {
      ASSIGN_OR_RETURN(setting.update_on, ParseUpdateOn(pair.second));
    } else if (pair.first == "min-bytes") {
      ASSIGN_OR_RETURN(gc.min_bytes, ParseBytes(pair.second));
    } else if (pair.first == "warmup-steps") {
      if (!absl::SimpleAtoi(pair.second, &gc.warmup_steps) ||
          gc.warmup_steps < 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("setting '", text, "': '", pair.second,
                         "' is not a number of steps"));
      }
    } else if (absl::c_linear_search(RunFlags(), pair.first)) {
      setting.flags.push_back(absl::StrCat("--", pair.first, "=", pair.second));
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("'", text, "': '", parts[i],
                       "' is none of reply, packing, threshold, momentum, "
                       "normalize, update-on, min-bytes, warmup-steps, ",
                       absl::StrJoin(RunFlags(), ", ")));
    }
  }
  if (setting.is_auto && setting.update_on == UpdateOn::kServer) {
    return absl::InvalidArgumentError(
        "--gc-type auto needs the optimizer on the workers (--update-on "
        "worker): weights are sent dense");
  }
  return setting;
}

CompressionConfig CompressionOf(const Setting& setting) {
  CompressionConfig compression = setting.compression;
  if (setting.update_on == UpdateOn::kServer) {
    compression.reply = ReplyMode::kDense;
  }
  return compression;
}

namespace {

// Where workers of a host cannot sum first it is off, unless it was asked for.
absl::Status SettleTierOne(const StoreTraits& traits, TrainOptions& options) {
  const char* const why_not =
      !traits.has_workers ? "has nothing to sum in one process"
      : traits.is_async   ? "makes workers of a host wait for each other"
      : options.drop_slowest > 0
          ? "makes workers of a host wait for each other, and --drop-slowest "
            "does not"
      : options.elastic.min > 0 ? "and --elastic has one pusher for several"
      : !options.gpus.empty()   ? "sums in host memory, not on --gpus"
                                : nullptr;
  if (why_not == nullptr) return absl::OkStatus();
  if (options.tier_one == "on") {
    return absl::InvalidArgumentError(
        absl::StrCat("--tier1 on with --kv-store ", options.kv_store, " ",
                     why_not, ": leave it out"));
  }
  // With --gpus the planner says it: a checkpoint has what was asked for, so
  // that a run on the CPU goes on from it.
  if (!traits.has_workers || traits.is_async || options.elastic.min > 0 ||
      options.drop_slowest > 0) {
    options.tier_one = "off";
  }
  return absl::OkStatus();
}

// Flags for a type that sums in the memory of GPUs.
absl::Status CheckGpuStore(const TrainOptions& options) {
  const auto refuse = [&](const auto&... what) {
    return absl::InvalidArgumentError(
        absl::StrCat("--kv-store ", options.kv_store, " ", what...));
  };
  if (options.gpus.empty()) {
    return refuse(
        "sums memory of GPUs: say which, as in --gpus 0,1 --devices 2; "
        "--kv-store local and device train on the CPU");
  }
  if (options.gpus == kEmulatedGpu) {
    return refuse("sums memory of GPUs, which --gpus emulated has not");
  }
  ASSIGN_OR_RETURN(const std::vector<int> gpus, ParseGpus(options.gpus));
  if (!gpus.empty()) RETURN_IF_ERROR(CheckNumGpus(options, gpus.size()));
  for (const Setting& setting : options.settings) {
    const CompressionConfig& gc = setting.compression;
    if (setting.is_auto || gc.type != "none" || !gc.rules.empty()) {
      return refuse(
          "sums dense gradients, without codecs (",
          setting.is_auto || gc.type != "none" ? setting.name : gc.rules,
          "); --kv-store device has them");
    }
    if (gc.nonfinite == NonFinitePolicy::kZero) {
      return refuse(
          "leaves gradients as they are: take --gc-nonfinite error, skip or "
          "propagate");
    }
    if (setting.update_on == UpdateOn::kServer) {
      return refuse("runs no optimizer: leave --update-on server out");
    }
    if (setting.momentum.value_or(PushMomentum::kNone) != PushMomentum::kNone) {
      return refuse(
          "leaves gradients as they are, so that momentum is the optimizer's: "
          "leave --gc-momentum out");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status SettleStore(TrainOptions& options) {
  ASSIGN_OR_RETURN(
      const StoreTraits traits,
      OfFlag("--kv-store", options.kv_store, FindStoreType(options.kv_store)));
  const auto refuse = [&](absl::string_view what) {
    return absl::InvalidArgumentError(
        absl::StrCat("--kv-store ", options.kv_store, " ", what));
  };
  if (options.devices > traits.max_devices) {
    return refuse(absl::StrCat("has one device a worker, not --devices ",
                               options.devices, "; take --kv-store local"));
  }
  if (traits.needs_gpus) RETURN_IF_ERROR(CheckGpuStore(options));
  RETURN_IF_ERROR(OfFlag("--kv-store", options.kv_store,
                         CheckStoreType(options.kv_store, options.devices)));
  options.hosts_parts = traits.hosts_parts;
  if (traits.hosts_parts) {
    if (options.has_servers && options.servers > 0) {
      return refuse("has no servers: leave --servers out, or 0");
    }
    options.servers = 0;
  } else if (traits.has_workers && options.servers == 0) {
    return refuse(
        "needs servers: leave --servers 0 out, or take --kv-store allreduce, "
        "in which workers sum");
  }
  RETURN_IF_ERROR(SettleTierOne(traits, options));
  if (traits.has_workers) return absl::OkStatus();
  for (const char* flag :
       {"--workers", "--servers", "--link", "--transport", "--plan",
        "--what-if", "--connections", "--resend", "--rails", "--tls",
        "--tcp-congestion", "--encryption"}) {
    if (options.given.contains(flag)) {
      return refuse(absl::StrCat("is one process without a network: leave ",
                                 flag, " out (--devices N sums N)"));
    }
  }
  for (const Setting& setting : options.settings) {
    if (setting.is_auto) {
      return refuse("sends nothing, so that --gc-type auto has no choice");
    }
  }
  if (options.has_auto_chunk) {
    return refuse("sends nothing, so that --chunk-elems auto has no choice");
  }
  options.workers = 1;
  options.servers = 0;
  return absl::OkStatus();
}

}  // namespace telegrad
