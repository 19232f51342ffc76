#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "topology/plan.h"
#include "trainer/flags/options.h"
#include "trainer/flags/profile.h"

namespace telegrad {
namespace {

// Which gradients they are hardly matters here; few know theirs by now.
constexpr char kUsualProfile[] = "resnet50";

// How many there will be: the launcher's, else the flags'.
struct Roles {
  int workers = 0;
  int servers = 0;  // processes that only serve
};

Roles RolesOf(const TrainOptions& options,
              const std::optional<Placement>& placement) {
  const int servers = options.has_servers ? options.servers : 0;
  if (!options.scheduler.empty()) return {options.workers, options.servers};
  if (!placement.has_value()) return {options.workers, servers};
  if (placement->role.has_value()) {
    return {placement->num_workers, placement->num_servers};
  }
  return {placement->world_size - servers, servers};
}

}  // namespace

absl::Status SettleAutoStore(const std::optional<Placement>& placement,
                             TrainOptions& options) {
  if (absl::AsciiStrToLower(options.kv_store) != "auto") {
    return absl::OkStatus();
  }
  const Roles roles = RolesOf(options, placement);
  PlanRequest request;
  ASSIGN_OR_RETURN(
      request.profile,
      LoadGradientProfile(IsProfile(options.network) ? options.network
                                                     : kUsualProfile));
  request.workers = roles.workers;
  request.servers = roles.servers;
  request.gc_type = "none";
  request.link_gbps = 8e-9 * options.link_spec.bytes_per_s;
  if (roles.servers > 0) {
    request.aggregation = {Aggregation::kDedicatedServers,
                           absl::StrCat(roles.servers, " servers are there")};
  }
  ASSIGN_OR_RETURN(const Plan plan,
                   MakePlan({}, AssumedCalibration(), request));
  // Workers and servers that somebody else has started stay.
  const bool are_fixed = placement.has_value() || !options.scheduler.empty();
  const bool is_advised = plan.advised.has_value() && !are_fixed;
  const bool has_servers =
      plan.aggregation == Aggregation::kDedicatedServers && !is_advised;
  options.kv_store = has_servers ? "dist_sync" : "allreduce";
  const Decision* const decision =
      FindDecision(plan, is_advised ? Decision::Kind::kAdvice
                                    : Decision::Kind::kAggregation);
  options.store_why =
      absl::StrCat("--kv-store auto: ", options.kv_store, ": ",
                   decision == nullptr ? "one machine" : decision->why);
  // Servers that would slow it down are not started.
  if (is_advised) options.has_servers = false;
  return absl::OkStatus();
}

absl::Status SettleStrategy(const std::optional<Placement>& placement,
                            TrainOptions& options) {
  StrategyRequest& request = options.strategy_request;
  const auto refuse = [](const auto&... why) {
    return absl::InvalidArgumentError(absl::StrCat(why...));
  };
  if (request.variable_update.empty()) {
    for (const char* flag : {"--local-parameter-device", "--all-reduce-spec"}) {
      if (!options.given.contains(flag)) continue;
      return refuse(flag, " has no effect: it needs --variable-update");
    }
    return absl::OkStatus();
  }
  for (const char* flag : {"--kv-store", "--update-on"}) {
    if (!options.given.contains(flag)) continue;
    return refuse(flag,
                  ": --variable-update chooses it; leave one of them out");
  }
  const bool is_one = !placement.has_value() && options.scheduler.empty() &&
                      !options.given.contains("--workers") &&
                      IsOfOneProcess(request);
  request.workers = is_one ? 1 : RolesOf(options, placement).workers;
  request.devices = options.devices;
  request.momentum = options.mom;
  ASSIGN_OR_RETURN(options.strategy, FindStrategy(request));
  const Strategy& strategy = *options.strategy;
  options.kv_store = strategy.kv_store;
  for (Setting& setting : options.settings) {
    setting.update_on = strategy.update_on;
  }
  options.store_why = absl::StrCat(
      "--variable-update ", strategy.name, ": --kv-store ", strategy.kv_store,
      ", --update-on ", ToString(strategy.update_on), ": ", strategy.why);
  return absl::OkStatus();
}

}  // namespace telegrad
