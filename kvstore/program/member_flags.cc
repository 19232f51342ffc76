#include "kvstore/program/member_flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/command_line.h"
#include "base/exit_code.h"
#include "base/folder.h"
#include "base/of_flag.h"
#include "base/status_macros.h"
#include "kvstore/job/flight/flight_log.h"
#include "kvstore/job/path/connections.h"
#include "kvstore/job/path/data_path.h"
#include "topology/apply.h"
#include "topology/plan.h"
#include "transport/check_transport.h"

namespace telegrad {
namespace {

void AddJobFlags(CLI::App& app, MemberFlags& options) {
  const char* group = "Job";
  app.add_option("--workers", options.workers,
                 "worker processes (no launcher: else the launcher decides); "
                 "telegrad-topo simulate plays larger jobs")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024))
      ->group(group);
  app.add_option("--servers", options.servers,
                 "server processes; under a launcher, so many of the last "
                 "ranks serve only (default there: every rank serves, too); "
                 "0: each worker sums a part (--kv-store allreduce)")
      ->capture_default_str()
      ->check(CLI::Range(0, 1024))
      ->group(group);
  app.add_flag("--workers-serve", options.workers_serve,
               "under a launcher, with --servers: the other ranks serve, too")
      ->group(group);
  app.add_option("--threads", options.threads,
                 "threads for codecs and sums, per process")
      ->capture_default_str()
      ->check(CLI::Range(0, 256))
      ->group(group);
  app.add_option("--scheduler", options.scheduler,
                 "host:port of a scheduler that telegrad-server runs: this "
                 "process is one of its --workers")
      ->group(group);
  app.add_option("--job-id", options.job_id,
                 "tells jobs apart; from the launcher where it gives one")
      ->group(group);
  app.add_option("--join-timeout", options.join_timeout_s,
                 "seconds until all must have joined")
      ->capture_default_str()
      ->check(CLI::Range(0.1, 86400.0))
      ->group(group);
  app.add_option("--dead-timeout", options.dead_timeout_s,
                 "seconds of silence after which a process counts as dead")
      ->capture_default_str()
      ->check(CLI::Range(0.5, 86400.0))
      ->group(group);
  app.add_option("--op-timeout", options.operation_timeout_s,
                 "seconds that one push or pull may take")
      ->capture_default_str()
      ->check(CLI::Range(0.5, 864000.0))
      ->group(group);
}

void AddEncryption(CLI::App& app, TransportOptions& transport) {
  app.add_option_function<std::string>(
         "--encryption",
         [&transport](const std::string& text) {
           transport.encryption =
               ParseEncryption(text).value_or(Encryption::kAuto);
         },
         "keys from --secret-file for each connection: auth: nobody on the "
         "path alters data unnoticed; on: nor reads them; auto: auth beyond "
         "loopback, where there is a secret; alike on all hosts")
      ->check(CLI::IsMember({"auto", "auth", "on", "off"}))
      ->default_str("auto");
}

}  // namespace

void AddPathFlags(CLI::App& app, PathFlags& flags) {
  TransportOptions& transport = flags.path.transport;
  app.option_defaults()->group("Network");
  app.add_option("--plan", flags.plan,
                 "obey this plan: a file of telegrad-topo plan --json, or a "
                 "run's summary.json; one that does not fit is refused");
  app.add_option("--transport", transport.name,
                 "data transport: tcp, ucx, ofi; a network; or auto: what "
                 "suits this machine")
      ->envname("TELEGRAD_TRANSPORT")
      ->capture_default_str();
  app.add_option("--tls", transport.tls,
                 "ucx: tcp, shm, empty: both; ofi: tcp, shm, verbs, efa; "
                 "tcp: tcp, empty: memory of the same host too");
  app.add_option_function<std::string>(
         "--connections",
         [&transport](const std::string& text) {
           transport.connections = ParseConnections(text).value_or(1);
         },
         "connections to each peer on another host, where one does not fill "
         "the link; auto: by the devices of --bind and --rails, one number "
         "for all hosts")
      ->check(&CheckConnections)
      ->default_str("1");
  app.add_option("--rails", transport.rails,
                 "more network devices of this host, or their addresses, that "
                 "connections are spread over (tcp): eth1,eth2")
      ->delimiter(',');
  app.add_flag("--resend", transport.resend,
               "check messages and send again what is lost, repeated, "
               "reordered or corrupted, on networks that do that; alike on all "
               "hosts");
  app.add_option("--tcp-congestion", transport.congestion,
                 "congestion control of tcp's connections: cubic or what else "
                 "the kernel has; system: its default; auto: that, but reno in "
                 "place of bbr to peers within 5 ms")
      ->capture_default_str();
  app.add_option("--link", flags.link,
                 "emulate a link of this rate and latency between each pair of "
                 "processes, per direction: 1gbit, 100mbit,5ms, 200us, none")
      ->capture_default_str();
  app.add_option("--bind", transport.bind_address,
                 "the one address that is listened on: an address, a network "
                 "(10.0.0.0/8), a device (ib0) or auto: the address by which "
                 "the scheduler is reached; other than loopback needs "
                 "--secret-file")
      ->capture_default_str();
  AddEncryption(app, transport);
  app.add_option("--secret-file", flags.secret_file,
                 "32 bytes or more that all members share; mode 600");
  app.add_flag("--insecure", flags.insecure,
               "bind other addresses without a secret: anyone who reaches them "
               "can join");
  app.option_defaults()->group("Options");
  AddMetricsFlags(app, flags.metrics);
  app.add_option("--flight-recorder", flags.flight_recorder,
                 "folder for the last frames and operations of each member, "
                 "written when the job fails and on SIGUSR2: who waited for "
                 "whom, for PyTorch's fr_trace");
}

absl::Status FinishPathFlags(const CLI::App& app, PathFlags& flags) {
  const std::string wrong =
      ExplainEmpty(app, {"--secret-file", "--plan", "--link", "--bind",
                         "--metrics-file", "--flight-recorder"});
  if (!wrong.empty()) return absl::InvalidArgumentError(wrong);
  RETURN_IF_ERROR(CheckMetricsFlags(flags.metrics));
  if (!flags.flight_recorder.empty()) {
    RETURN_IF_ERROR(MakeFolder("--flight-recorder", flags.flight_recorder));
  }
  TransportOptions& transport = flags.path.transport;
  ASSIGN_OR_RETURN(flags.link_spec,
                   OfFlag("--link", flags.link, ParseLink(flags.link)));
  transport.link_bytes_per_s = flags.link_spec.bytes_per_s;
  transport.link_latency_s = flags.link_spec.latency_s;
  RETURN_IF_ERROR(OfFlag(
      "--encryption", CheckEncryption(transport, !flags.secret_file.empty())));
  if (flags.plan.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(flags.path.given, LoadPlan(flags.plan));
  if (app.count("--connections") == 0) {
    transport.connections = kAutoConnections;
  }
  return absl::OkStatus();
}

absl::StatusOr<Secret> SecretOf(const PathFlags& flags,
                                const std::string& job_id) {
  if (flags.secret_file.empty()) return Secret();
  return Secret::FromFile(flags.secret_file, job_id);
}

void AddMemberFlags(CLI::App& app, MemberFlags& flags) {
  AddJobFlags(app, flags);
  AddPathFlags(app, flags);
  app.add_option("--ledger", flags.ledger,
                 "folder in which those who sum write, for each round of each "
                 "tensor, who has pushed and the checksum of the sum");
}

absl::StatusOr<Parts> PartsOf(const Placement& placement,
                              const MemberFlags& flags) {
  return PartsOf(placement, flags.has_servers ? flags.servers : 0,
                 flags.workers_serve);
}

absl::Status FinishMemberFlags(const CLI::App& app, MemberFlags& flags) {
  flags.has_servers = app.count("--servers") > 0;
  const std::string wrong = ExplainEmpty(app, {"--scheduler", "--ledger"});
  if (!wrong.empty()) return absl::InvalidArgumentError(wrong);
  if (!flags.ledger.empty()) {
    RETURN_IF_ERROR(MakeFolder("--ledger", flags.ledger));
  }
  return FinishPathFlags(app, flags);
}

namespace {

// Flag by flag, so that the wrong one is named.
absl::Status CheckEach(const TransportOptions& all) {
  TransportOptions told;
  told.name = all.name;
  told.bind_address = all.bind_address;
  RETURN_IF_ERROR(OfFlag("--transport", CheckPath(told)));
  told.tls = all.tls;
  RETURN_IF_ERROR(OfFlag("--tls", CheckPath(told)));
  told.rails = all.rails;
  RETURN_IF_ERROR(OfFlag("--rails", CheckPath(told)));
  told.congestion = all.congestion;
  return OfFlag("--tcp-congestion", CheckPath(told));
}

// A network by its name is a demand, of a job on one machine too.
absl::Status CheckNetwork(const std::string& name, const MachineReport& here) {
  if (!here.machine.ok()) return absl::OkStatus();
  PlanRequest request{.workers = 2};
  request.network = {name, "--transport " + name};
  const absl::Status found = PlanPath({&*here.machine, 1}, request).status();
  if (found.ok()) return found;
  return WithExitCode(
      ExitCode::kMismatch,
      absl::FailedPreconditionError(absl::StrCat(
          found.message(), "; --transport auto takes what there is")));
}

}  // namespace

absl::Status CheckMemberPath(const MemberFlags& flags,
                             std::function<MachineReport()> look) {
  PathOptions path = flags.path;
  const std::string& name = path.transport.name;
  RETURN_IF_ERROR(CheckBetweenProcesses(name));
  RETURN_IF_ERROR(CheckEach(path.transport));
  if (TransportNamed(name) != name && path.given == nullptr) {
    RETURN_IF_ERROR(CheckNetwork(name, look()));
  }
  path.look = std::move(look);
  return CheckPath(path);
}

ControlTiming TimingOf(const MemberFlags& flags) {
  ControlTiming timing;
  timing.join = FromSeconds(flags.join_timeout_s);
  timing.dead = FromSeconds(flags.dead_timeout_s);
  timing.heartbeat = std::min<Duration>(timing.heartbeat,
                                        FromSeconds(flags.dead_timeout_s / 5));
  return timing;
}

absl::StatusOr<DistOptions> DistOptionsOf(const MemberFlags& flags,
                                          const std::string& job_id) {
  DistOptions dist;
  dist.job_id = job_id;
  ASSIGN_OR_RETURN(dist.secret, SecretOf(flags, job_id));
  dist.path = flags.path;
  dist.facts = {{"emulated link", flags.link}};
  dist.timing = TimingOf(flags);
  dist.operation_timeout = FromSeconds(flags.operation_timeout_s);
  dist.num_threads = flags.threads;
  dist.ledger = flags.ledger;
  dist.flight = std::make_shared<FlightLog>(flags.flight_recorder);
  return dist;
}

}  // namespace telegrad
