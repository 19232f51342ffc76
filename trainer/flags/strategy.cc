#include "trainer/flags/strategy.h"

#include <cstdint>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "kvstore/kvstore.h"

namespace telegrad {
namespace {

constexpr char kStrategyNames[] =
    "parameter_server, replicated, independent, horovod, "
    "distributed_replicated, distributed_all_reduce, collective_all_reduce";
constexpr char kAllReduceAlgorithms[] = "nccl, pscpu, psgpu, xring, collective";

absl::Status WrongStrategy(const auto&... why) {
  return absl::InvalidArgumentError(absl::StrCat(why...));
}

absl::Status MissingStrategy(const StrategyRequest& request,
                             const auto&... why) {
  return absl::UnimplementedError(
      absl::StrCat("--variable-update ", request.variable_update, " ", why...));
}

// One algorithm of an all-reduce spec: "pscpu", "xring#2", "nccl/xring".
struct SpecLevel {
  std::string inner;  // between devices of a host; empty: as the other
  std::string outer;
};

absl::StatusOr<std::string> ParseAlgorithm(absl::string_view text) {
  const std::vector<std::string> parts = absl::StrSplit(text, '#');
  int64_t shards = 1;
  const bool is_known = parts[0] == "nccl" || parts[0] == "pscpu" ||
                        parts[0] == "psgpu" || parts[0] == "xring" ||
                        parts[0] == "collective";
  if (!is_known || parts.size() > 2 ||
      (parts.size() == 2 &&
       (!absl::SimpleAtoi(parts[1], &shards) || shards < 1))) {
    return WrongStrategy("--all-reduce-spec: '", text, "' is none of ",
                         kAllReduceAlgorithms, ", with #N for shards");
  }
  return parts[0];
}

absl::StatusOr<SpecLevel> ParseLevel(absl::string_view text) {
  const std::vector<std::string> parts = absl::StrSplit(text, '/');
  if (parts.size() > 2) {
    return WrongStrategy("--all-reduce-spec: '", text,
                         "' has more than two levels");
  }
  SpecLevel level;
  ASSIGN_OR_RETURN(level.outer, ParseAlgorithm(parts.back()));
  if (parts.size() == 2) {
    ASSIGN_OR_RETURN(level.inner, ParseAlgorithm(parts[0]));
  }
  return level;
}

// "2k" in elements, as allreduce.py has it.
bool IsLimit(absl::string_view text) {
  int64_t number = 0;
  if (!text.empty() && (text.back() == 'k' || text.back() == 'K' ||
                        text.back() == 'm' || text.back() == 'M')) {
    text.remove_suffix(1);
  }
  return absl::SimpleAtoi(text, &number) && number > 0;
}

// Levels with growing limits between them: "pscpu:2k:xring".
absl::StatusOr<std::vector<SpecLevel>> ParseSpec(const std::string& spec) {
  const std::vector<std::string> parts = absl::StrSplit(spec, ':');
  std::vector<SpecLevel> levels;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i % 2 == 1) {
      if (IsLimit(parts[i]) && i + 1 < parts.size()) continue;
      return WrongStrategy("--all-reduce-spec '", spec, "': '", parts[i],
                           "' is no number of elements between two algorithms");
    }
    ASSIGN_OR_RETURN(levels.emplace_back(), ParseLevel(parts[i]));
  }
  return levels;
}

// The store that sums the devices of one process by an algorithm.
absl::StatusOr<std::string> LocalStoreOf(const StrategyRequest& request,
                                         const SpecLevel& level) {
  if (!level.inner.empty()) {
    return WrongStrategy("--all-reduce-spec ", request.all_reduce_spec,
                         ": two levels need several workers");
  }
  if (level.outer == "pscpu") return "local";
  if (level.outer == "psgpu") return "device";
  if (level.outer == "nccl") return "nccl";
  return MissingStrategy(
      request, "by ", level.outer,
      ": devices of one process have no such sum; take pscpu, "
      "psgpu or nccl");
}

// The store that sums over workers.
absl::StatusOr<std::string> WorkersStoreOf(const StrategyRequest& request,
                                           const SpecLevel& level) {
  for (const std::string& algorithm : {level.inner, level.outer}) {
    if (algorithm != "nccl" && algorithm != "psgpu") continue;
    return MissingStrategy(
        request, "by ", algorithm,
        ": sums over workers are on their CPUs; take pscpu, xring "
        "or collective");
  }
  return "allreduce";
}

// The store for tensors of all sizes, as one store has all tensors.
absl::StatusOr<std::string> StoreOf(
    const StrategyRequest& request, const std::string& spec,
    absl::StatusOr<std::string> (*store_of)(const StrategyRequest&,
                                            const SpecLevel&)) {
  ASSIGN_OR_RETURN(const std::vector<SpecLevel> levels, ParseSpec(spec));
  ASSIGN_OR_RETURN(const std::string store, store_of(request, levels[0]));
  for (const SpecLevel& level : levels) {
    ASSIGN_OR_RETURN(const std::string other, store_of(request, level));
    if (other == store) continue;
    return MissingStrategy(request, "with ", spec, " needs the stores ", store,
                           " and ", other,
                           " in one run; give one algorithm for all sizes");
  }
  return store;
}

absl::Status CheckFlags(const StrategyRequest& request,
                        const std::string& name) {
  const bool has_spec = name == "replicated" ||
                        name == "distributed_all_reduce" ||
                        name == "collective_all_reduce";
  if (!request.all_reduce_spec.empty() && !has_spec) {
    return WrongStrategy("--all-reduce-spec has no effect: ", name,
                         " has no such sums");
  }
  const std::string& device = request.local_parameter_device;
  if (!device.empty() && device != "cpu" && device != "gpu") {
    return WrongStrategy("--local-parameter-device: '", device,
                         "' is neither cpu nor gpu");
  }
  const bool has_device =
      name == "parameter_server" ||
      (name == "replicated" && request.all_reduce_spec.empty());
  if (!device.empty() && !has_device) {
    return WrongStrategy("--local-parameter-device has no effect: ", name,
                         request.all_reduce_spec.empty() ? "" : " by a spec",
                         " has variables where it computes");
  }
  return absl::OkStatus();
}

absl::StatusOr<Strategy> InOneProcess(const StrategyRequest& request,
                                      const std::string& name) {
  const std::string local =
      request.local_parameter_device == "gpu" ? "device" : "local";
  if (name == "parameter_server") {
    return Strategy{.name = name,
                    .kv_store = local,
                    .update_on = UpdateOn::kServer,
                    .divisor = request.devices,
                    .why = "one copy of the weights, stepped by the mean"};
  }
  Strategy strategy{.name = name,
                    .kv_store = local,
                    .why = "a copy on each device, stepped by the sum"};
  if (!request.all_reduce_spec.empty()) {
    ASSIGN_OR_RETURN(strategy.kv_store,
                     StoreOf(request, request.all_reduce_spec, LocalStoreOf));
  }
  return strategy;
}

absl::StatusOr<Strategy> OverWorkers(const StrategyRequest& request,
                                     const std::string& name) {
  if (name == "distributed_replicated") {
    if (request.momentum != 0) {
      return MissingStrategy(
          request,
          "with momentum: TensorFlow's servers step once for each "
          "worker in turn, ours once for their sum, which is the "
          "same without; give --optimizer sgd --mom 0");
    }
    return Strategy{.name = name,
                    .kv_store = "dist_sync",
                    .update_on = UpdateOn::kServer,
                    .divisor = request.devices,
                    .why = "servers step by the sum of each worker's mean"};
  }
  Strategy strategy{.name = name,
                    .kv_store = "allreduce",
                    .why = "a copy on each device, stepped by the sum"};
  const std::string& spec = request.all_reduce_spec;
  if (!spec.empty()) {
    ASSIGN_OR_RETURN(strategy.kv_store, StoreOf(request, spec, WorkersStoreOf));
  }
  if (name == "collective_all_reduce" && !spec.empty() &&
      !spec.starts_with("collective")) {
    return WrongStrategy("--all-reduce-spec ", spec, ": ", name,
                         " is by collective alone");
  }
  return strategy;
}

absl::StatusOr<Strategy> ByName(const StrategyRequest& request,
                                const std::string& name) {
  const bool is_one = request.workers == 1;
  if (name == "parameter_server" && !is_one) {
    return Strategy{.name = name,
                    .kv_store = "dist_async",
                    .update_on = UpdateOn::kServer,
                    .divisor = request.devices,
                    .why = "servers step for each worker, as it comes"};
  }
  if (name == "independent") {
    if (is_one && request.devices == 1) {
      return Strategy{.name = name, .kv_store = "local", .why = "alone"};
    }
    return MissingStrategy(request, "sums nothing: start a run for each of ",
                           request.workers * request.devices, " devices");
  }
  if (name == "replicated" && !is_one) {
    return WrongStrategy("--variable-update replicated is one process, not ",
                         request.workers,
                         " workers; take distributed_replicated, ",
                         "distributed_all_reduce or collective_all_reduce");
  }
  const bool is_of_one = name == "parameter_server" || name == "replicated";
  return is_of_one ? InOneProcess(request, name) : OverWorkers(request, name);
}

}  // namespace

absl::StatusOr<Strategy> FindStrategy(const StrategyRequest& request) {
  const std::string name =
      absl::StrReplaceAll(request.variable_update, {{"-", "_"}});
  const std::vector<std::string> names = absl::StrSplit(kStrategyNames, ", ");
  bool is_known = false;
  for (const std::string& each : names) is_known |= name == each;
  if (!is_known) {
    return WrongStrategy("--variable-update '", request.variable_update,
                         "' is none of ", kStrategyNames);
  }
  RETURN_IF_ERROR(CheckFlags(request, name));
  ASSIGN_OR_RETURN(Strategy strategy, ByName(request, name));
  const absl::Status store = FindStoreType(strategy.kv_store).status();
  if (store.ok()) return strategy;
  return MissingStrategy(request,
                         "needs a store that is not there: ", store.message());
}

bool IsOfOneProcess(const StrategyRequest& request) {
  const std::string name =
      absl::StrReplaceAll(request.variable_update, {{"-", "_"}});
  return name == "parameter_server" || name == "replicated" ||
         name == "independent";
}

SgdParameters StrategySgd(const Strategy& strategy, int num_devices,
                          SgdParameters sgd) {
  const auto divisor = static_cast<float>(strategy.divisor);
  sgd.rescale = 1.0f / divisor;
  sgd.weight_decay *= static_cast<float>(num_devices) / divisor;
  return sgd;
}

}  // namespace telegrad
