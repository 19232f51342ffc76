#include "perf/network/network_options.h"

#include <CLI/CLI.hpp>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "base/of_flag.h"
#include "base/status_macros.h"
#include "kernels/device_scope.h"
#include "kvstore/tuning/machine_detection.h"
#include "perf/network/launch.h"
#include "perf/network/sizes.h"
#include "perf/payload_memory.h"

namespace telegrad::perf {
namespace {

void AddRankFlags(CLI::App& app, NetworkOptions& options) {
  Last(app.add_option("--ranks", options.ranks,
                      "number of ranks; threads with --transport inproc")
           ->check(CLI::Range(1, 1024))
           ->capture_default_str());
  Last(app.add_option("--rank", options.rank,
                      "this process's rank, from 0; without it and "
                      "--rendezvous this command starts all ranks on this "
                      "machine"));
  Last(app.add_option("--rendezvous", options.rendezvous,
                      "HOST:PORT where rank 0 listens, the same for all; of "
                      "two ranks without --rank the first on HOST is rank 0"));
  app.add_option("--timeout", options.timeout_s,
                 "seconds without progress after which a rank gives up; "
                 "telling the others and closing take up to 3 more")
      ->check(CLI::Range(0.1, 86400.0))
      ->capture_default_str();
  app.add_flag("--pin", options.pins,
               "bind each local rank to a core of its own");
}

}  // namespace

void AddMemoryFlag(CLI::App& app, NetworkOptions& options) {
  app.add_option("--memory", options.memory, kMemoryHelp)
      ->capture_default_str();
}

void Last(CLI::Option* option) {
  option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

void AddNetworkFlags(CLI::App& app, const std::string& default_sizes,
                     NetworkOptions& options) {
  options.size_text = default_sizes;
  AddPathFlags(app, options);
  app.get_option("--bind")->default_str("where the rendezvous is reached");
  app.add_option("--fault", options.path.transport.fault,
                 "lose or corrupt messages, to see that --check finds it: "
                 "flip=0.01,seed=7");
  AddRankFlags(app, options);
  if (!default_sizes.empty()) {
    app.add_option("--size", options.size_text,
                   "bytes: a list 4K,64K,1M or a sweep FIRST:LAST:xFACTOR, "
                   "FIRST:LAST:+STEP")
        ->capture_default_str();
  }
  app.add_option("--warmup", options.warmup,
                 "iterations before those measured; 0 needs --iterations")
      ->check(CLI::Range(0, 100000))
      ->capture_default_str();
  app.add_option("--iterations", options.iterations,
                 "iterations of each size; 0: as many as take --seconds")
      ->check(CLI::Range(0, 20000))
      ->capture_default_str();
  app.add_option("--seconds", options.seconds,
                 "about so long for each size, at least 5 and at most 20000 "
                 "iterations")
      ->check(CLI::Range(0.001, 3600.0))
      ->capture_default_str();
  app.add_flag("--check", options.checks,
               "verify every element of the results, outside of the times");
  app.add_flag("--json", options.json, "one JSON object per line");
  app.add_flag("--times", options.lists_times,
               "with --json the time of every iteration, too: times_us");
  app.add_option("--html", options.html,
                 "also write a page with plots to this file");
}

absl::Status FinishOptions(NetworkOptions& options) {
  if (!options.size_text.empty()) {
    ASSIGN_OR_RETURN(options.sizes, OfFlag("--size", options.size_text,
                                           ParseSizes(options.size_text)));
  }
  RETURN_IF_ERROR(PayloadDevice(options.memory, 0).status());
  if (options.warmup == 0 && options.iterations == 0) {
    return absl::InvalidArgumentError(
        "--warmup 0 tells nothing of how many iterations take --seconds: give "
        "--iterations");
  }
  if (options.rank >= options.ranks) {
    return absl::InvalidArgumentError(
        absl::StrCat("--rank ", options.rank, " of --ranks ", options.ranks,
                     "; ranks count from 0"));
  }
  if (options.rank >= 0 && options.rendezvous.empty()) {
    return absl::InvalidArgumentError(
        "--rank needs --rendezvous HOST:PORT, the same for all ranks");
  }
  if (AreThreads(options) &&
      (options.rank >= 0 || !options.rendezvous.empty())) {
    return absl::InvalidArgumentError(
        "--transport inproc has ranks of one process; leave --rank and "
        "--rendezvous out");
  }
  return CheckPath(PathOptionsOf(options).transport);
}

absl::Status TakePathFlags(const CLI::App& app, NetworkOptions& options) {
  RETURN_IF_ERROR(FinishPathFlags(app, options));
  if (options.path.given == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(const bool starts_all, StartsAll(options));
  if (!starts_all) return absl::OkStatus();
  const GivenPlan& given = *options.path.given;
  const Plan& plan = given.plan;
  if (plan.workers != 1 || plan.servers != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        given.by, " is for ", plan.workers, " machines with workers and ",
        plan.servers,
        " with servers only; all ranks are on this one; plan with --workers "
        "1"));
  }
  const absl::Status fits = CheckPath(PathOptionsOf(options));
  return fits.ok() ? fits : absl::InvalidArgumentError(fits.message());
}

PathOptions PathOptionsOf(const NetworkOptions& options, int worker) {
  PathOptions path = options.path;
  if (worker >= 0) {
    const auto device = PayloadDevice(options.memory, worker);
    if (device.ok()) path.gpu_bus_id = kernels::BusIdOf(*device);
  }
  TransportOptions& transport = path.transport;
  if (options.memory != "host") transport.memory = "auto";
  if (transport.bind_address.empty()) transport.bind_address = "127.0.0.1";
  path.look = [bind = transport.bind_address] {
    return MachineDetection(bind).Get();
  };
  return path;
}

void SayDecision(const Plan& plan, Decision::Kind what) {
  const Decision* decision = FindDecision(plan, what);
  if (decision == nullptr) return;
  std::fprintf(stderr, "telegrad-perf: %s\n", ToText(*decision).c_str());
}

}  // namespace telegrad::perf
