#include "perf/network/network_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/of_flag.h"
#include "base/status_macros.h"
#include "base/units.h"
#include "kvstore/job/path/connections.h"
#include "kvstore/tuning/machine_detection.h"
#include "perf/network/launch.h"
#include "perf/network/sizes.h"
#include "perf/payload_memory.h"
#include "topology/apply.h"

namespace telegrad::perf {
namespace {

void AddTransportFlags(CLI::App& app, NetworkOptions& options) {
  app.add_option(
         "--transport", options.transport,
         "auto: by the machine; tcp, ucx, ofi; inproc: ranks are threads")
      ->envname("TELEGRAD_TRANSPORT")
      ->capture_default_str();
  app.add_option("--tls", options.tls,
                 "for ucx and ofi: tcp, shm; for tcp: tcp, never memory of the "
                 "same host; when not given both for ucx, and efa, verbs or "
                 "tcp for ofi, the first there is");
  app.add_option(
         "--connections", options.connections,
         "to each peer on another host; auto: by the device that has "
         "the address and --rails; pushpull settles on one number for "
         "all, in other commands ranks whose devices differ end with 31")
      ->check(&CheckConnections)
      ->capture_default_str();
  app.add_option("--plan", options.plan,
                 "obey this plan: a file of telegrad-topo plan --json, or a "
                 "run's summary.json; one that does not fit is refused");
  app.add_option("--rails", options.rails,
                 "more network devices of this host, or their addresses, that "
                 "connections are spread over (tcp): eth1,eth2")
      ->delimiter(',');
  app.add_option("--tcp-congestion", options.tcp_congestion,
                 "of tcp's connections: cubic or what else the kernel has; "
                 "system: its default; auto: that, but reno in place of bbr to "
                 "peers within 5 ms")
      ->capture_default_str();
  app.add_option("--bind", options.bind,
                 "an address to listen on, a network (10.0.0.0/8), a device "
                 "(ib0) or auto; by default the address by which the "
                 "rendezvous is reached");
  app.add_option("--secret-file", options.secret_file,
                 "32 bytes or more that all ranks share; mode 600; needed "
                 "beyond loopback");
  app.add_flag("--insecure", options.insecure,
               "listen beyond loopback without a secret: anyone who reaches "
               "the address can join");
  app.add_option("--link", options.link,
                 "emulate a link of that rate and latency: 1gbit, 100mbit,5ms, "
                 "200us, none")
      ->capture_default_str();
  app.add_option("--fault", options.fault,
                 "lose or corrupt messages, to see that --check finds it: "
                 "flip=0.01,seed=7");
  app.add_flag("--resend", options.resend,
               "send again what is lost, repeated, reordered or corrupted; "
               "alike "
               "on all ranks");
}

void AddRankFlags(CLI::App& app, NetworkOptions& options) {
  Last(app.add_option("--ranks", options.ranks, "number of ranks")
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
  AddTransportFlags(app, options);
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
  RETURN_IF_ERROR(
      OfFlag("--link", options.link, ParseLink(options.link).status()));
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
  if (options.transport == "inproc" &&
      (options.rank >= 0 || !options.rendezvous.empty())) {
    return absl::InvalidArgumentError(
        "--transport inproc has ranks of one process; leave --rank and "
        "--rendezvous out");
  }
  ASSIGN_OR_RETURN(const PathOptions path, PathOptionsOf(options));
  return CheckPath(path.transport);
}

absl::Status TakePlan(const CLI::App& app, NetworkOptions& options) {
  if (options.plan.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(options.given, LoadPlan(options.plan));
  if (app.count("--connections") == 0) options.connections = "auto";
  ASSIGN_OR_RETURN(const bool starts_all, StartsAll(options));
  if (!starts_all) return absl::OkStatus();
  const Plan& plan = options.given->plan;
  if (plan.workers != 1 || plan.servers != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        options.given->by, " is for ", plan.workers,
        " machines with workers and ", plan.servers,
        " with servers only; all ranks are on this one; plan with --workers "
        "1"));
  }
  ASSIGN_OR_RETURN(const PathOptions path, PathOptionsOf(options));
  const absl::Status fits = CheckPath(path);
  return fits.ok() ? fits : absl::InvalidArgumentError(fits.message());
}

absl::StatusOr<PathOptions> PathOptionsOf(const NetworkOptions& options) {
  PathOptions path;
  TransportOptions& transport = path.transport;
  transport.name = options.transport;
  transport.tls = options.tls;
  transport.congestion = options.tcp_congestion;
  transport.rails = options.rails;
  transport.fault = options.fault;
  if (options.memory != "host") transport.memory = "auto";
  transport.resend = options.resend;
  transport.bind_address = options.bind.empty() ? "127.0.0.1" : options.bind;
  ASSIGN_OR_RETURN(const LinkSpec link, ParseLink(options.link));
  transport.link_bytes_per_s = link.bytes_per_s;
  transport.link_latency_s = link.latency_s;
  ASSIGN_OR_RETURN(const size_t connections,
                   ParseConnections(options.connections));
  path.given = options.given;
  transport.connections = connections;
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
