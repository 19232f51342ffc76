#include "perf/network/launch.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/network_device.h"
#include "base/of_flag.h"
#include "base/socket.h"
#include "base/status_macros.h"
#include "kvstore/job/control/secret.h"
#include "kvstore/job/flight/flight_log.h"
#include "kvstore/job/launch/child_processes.h"
#include "kvstore/job/path/job_options.h"
#include "kvstore/program/write_by_signal.h"
#include "perf/network/commands.h"

namespace telegrad::perf {
namespace {

constexpr char kJob[] = "telegrad-perf";

// To the `index`-th of the cores that this process may use, if there are
// enough.
void PinToCore(int index) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0 ||
      CPU_COUNT(&allowed) <= index) {
    return;
  }
  int core = 0;
  for (int left = index; !CPU_ISSET(core, &allowed) || left-- > 0;) ++core;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  (void)sched_setaffinity(0, sizeof(one), &one);
}

// The processes that are started by no other.
int NumLeaders(const NetworkOptions& options) {
  return options.has_companions ? options.ranks / 2 : options.ranks;
}

// Before anything is measured; on rank 0, which writes it.
absl::Status CheckPage(const NetworkOptions& options) {
  if (options.html.empty()) return absl::OkStatus();
  const bool is_new = access(options.html.c_str(), F_OK) != 0;
  if (!std::ofstream(options.html, std::ios::app)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--html ", options.html, " cannot be written"));
  }
  if (is_new) (void)std::remove(options.html.c_str());
  return absl::OkStatus();
}

// Why --bind or --rendezvous cannot be: it is wrong, or a secret is missing.
absl::Status Refused(absl::string_view flag, const std::string& value,
                     const absl::Status& why) {
  const bool lacks_secret = ExitCodeOf(why) == ExitCode::kAuthentication;
  return WithExitCode(
      lacks_secret ? ExitCode::kAuthentication : ExitCode::kUsage,
      OfFlag(flag, value, why));
}

// Turns what --bind names into an address of this host.
absl::Status FindBind(NetworkOptions& options, const Placement* placement) {
  std::string& bind = options.path.transport.bind_address;
  if (bind.empty()) return absl::OkStatus();
  Placement met = placement == nullptr ? Placement() : *placement;
  if (!options.rendezvous.empty()) {
    ASSIGN_OR_RETURN(const HostPort where, ParseHostPort(options.rendezvous));
    met.scheduler_host = where.host;
  }
  const bool is_alone = placement == nullptr && options.rendezvous.empty();
  ASSIGN_OR_RETURN(bind, BindAddress(bind, is_alone ? nullptr : &met));
  return absl::OkStatus();
}

// Whether this machine has that address.
bool IsOwn(const std::string& host) {
  const auto any_port = ParseIp(host, 0);
  return any_port.ok() && ListenOn(*any_port).ok();
}

// The name of a process, whose rank may not be known yet.
std::string NameOf(const NetworkOptions& options) {
  return options.rank >= 0 ? absl::StrCat("rank", options.rank)
                           : absl::StrCat("pid", getpid());
}

// The ranks of one command.
class Launch {
 public:
  // `core`: the rank's among those of its host, for --pin.
  Launch(const NetworkOptions& options, const std::vector<std::string>& words,
         const Benchmark& benchmark, int core, Secret secret)
      : options_(options),
        words_(words),
        benchmark_(benchmark),
        core_(core),
        secret_(std::move(secret)),
        flight_(std::make_shared<FlightLog>(options.flight_recorder)),
        records_(flight_) {}

  // All, as rank 0.
  absl::Status RunAll() {
    options_.rank = 0;
    ASSIGN_OR_RETURN(const auto scheduler, StartHere());
    for (int rank = 1; rank < NumLeaders(options_); ++rank) {
      RETURN_IF_ERROR(Start(rank, scheduler->address()));
    }
    return RunRoot(*scheduler);
  }

  // All, in this process.
  absl::Status RunThreads() {
    RETURN_IF_ERROR(CheckPage(options_));
    ASSIGN_OR_RETURN(const auto scheduler, Scheduler::Start(Scheduling()));
    std::vector<absl::Status> results(static_cast<size_t>(options_.ranks));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < options_.ranks; ++rank) {
      threads.emplace_back([this, rank, &results, &scheduler] {
        if (options_.pins) PinToCore(rank);
        results[static_cast<size_t>(rank)] =
            RunRank(rank, scheduler->address());
      });
    }
    for (std::thread& thread : threads) thread.join();
    absl::Status worst;
    for (const absl::Status& result : results) {
      worst = MoreTelling(worst, result);
    }
    return worst;
  }

  // Under a launcher that gives no address: rank 0's is exchanged by PMIx.
  absl::Status RunByPmix() {
    const int timeout_s = std::max(1, static_cast<int>(options_.timeout_s));
    if (options_.rank > 0) {
      ASSIGN_OR_RETURN(options_.rendezvous,
                       ExchangeOverPmix(options_.rank, "", timeout_s));
      return RunMember();
    }
    ASSIGN_OR_RETURN(const auto scheduler, StartHere());
    RETURN_IF_ERROR(
        ExchangeOverPmix(0, scheduler->address(), timeout_s).status());
    return RunRoot(*scheduler);
  }

  // Runs options.rank, which knows where to meet.
  absl::Status RunPlaced() {
    if (options_.rank > 0) return RunMember();
    ASSIGN_OR_RETURN(const HostPort where,
                     ParseHostPort(options_.rendezvous, 0));
    ASSIGN_OR_RETURN(const auto scheduler, StartAt(where.host, where.port));
    return RunRoot(*scheduler);
  }

  // Runs a command that was given twice, here or on two hosts.
  absl::Status RunOneOfTwo() {
    if (NumLeaders(options_) != 2) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--rendezvous without --rank is for two processes, not for ",
          NumLeaders(options_),
          ": give each its --rank, or start them by mpirun or srun"));
    }
    const absl::StatusOr<std::unique_ptr<Scheduler>> scheduler =
        StartIfFirst(options_.rendezvous, Scheduling());
    if (!scheduler.ok()) {
      return Refused("--rendezvous", options_.rendezvous, scheduler.status());
    }
    options_.rank = *scheduler == nullptr ? 1 : 0;
    core_ = options_.rank;
    return *scheduler == nullptr ? RunMember() : RunRoot(**scheduler);
  }

 private:
  int num_workers() const { return options_.ranks - benchmark_.num_servers; }

  SchedulerOptions Scheduling() const {
    return {.num_workers = num_workers(),
            .num_servers =
                benchmark_.hosts_parts ? num_workers() : benchmark_.num_servers,
            .job_id = kJob,
            .secret = secret_,
            .insecure = options_.insecure,
            .timing = {.join = TimeoutOf(options_)},
            .frees_port = true,
            .metrics = options_.numbers};
  }
  absl::StatusOr<std::unique_ptr<Scheduler>> StartAt(const std::string& host,
                                                     int port) const {
    SchedulerOptions scheduling = Scheduling();
    scheduling.bind_address = host;
    scheduling.port = port;
    return Scheduler::Start(scheduling);
  }
  absl::StatusOr<std::unique_ptr<Scheduler>> StartHere() const {
    const std::string& bind = options_.path.transport.bind_address;
    if (bind.empty()) return Scheduler::Start(Scheduling());
    auto scheduler = StartAt(bind, 0);
    if (scheduler.ok()) return scheduler;
    return Refused("--bind", bind, scheduler.status());
  }

  absl::Status Start(int rank, const std::string& rendezvous) {
    std::vector<std::string> theirs = words_;
    theirs.push_back(absl::StrCat("--rank=", rank));
    theirs.push_back(absl::StrCat("--ranks=", options_.ranks));
    theirs.push_back(absl::StrCat("--rendezvous=", rendezvous));
    return others_.Start({Role::kWorker, rank},
                         [&theirs](int) { return theirs; });
  }

  absl::Status RunMember() {
    if (options_.path.transport.bind_address.empty()) {
      ASSIGN_OR_RETURN(const HostPort where,
                       ParseHostPort(options_.rendezvous));
      ASSIGN_OR_RETURN(options_.path.transport.bind_address,
                       OfFlag("--rendezvous", options_.rendezvous,
                              OwnAddress("auto", where.host)));
    }
    return RunPinned(options_.rendezvous);
  }

  absl::Status RunRoot(Scheduler& scheduler) {
    RETURN_IF_ERROR(CheckPage(options_));
    ASSIGN_OR_RETURN(const HostPort where, ParseHostPort(scheduler.address()));
    if (options_.path.transport.bind_address.empty())
      options_.path.transport.bind_address = where.host;
    absl::Status status = RunPinned(scheduler.address());
    if (status.ok()) return scheduler.Wait(nullptr);
    if (ExitCodeOf(status) == ExitCode::kJoinTimeout) {
      const auto address = ParseIp(where.host, 0);
      const bool is_loopback = address.ok() && IsLoopback(*address);
      status = OfFlag(
          absl::StrCat("rendezvous at ", scheduler.address(),
                       is_loopback ? " (which only this host reaches)" : ""),
          status);
    }
    FatalEvent event{.code = ExitCodeOf(status)};
    event.message = std::string(status.message());
    scheduler.Fail(event);
    return MoreTelling(status, scheduler.Wait(nullptr));
  }

  // This process's rank, beside those that it starts.
  absl::Status RunPinned(const std::string& scheduler) {
    const int num_leaders = NumLeaders(options_);
    if (num_leaders < options_.ranks && options_.rank < num_leaders) {
      RETURN_IF_ERROR(Start(options_.rank + num_leaders, scheduler));
    }
    if (options_.pins) PinToCore(core_);
    const absl::Status status = RunRank(options_.rank, scheduler);
    // Where ours says as much it is the more precise; theirs is on standard
    // error.
    const absl::Status ended = others_.AwaitAll(
        Clock::now() + (status.ok() ? TimeoutOf(options_)
                                    : Duration(std::chrono::seconds(5))));
    return MoreTelling(status, ended);
  }

  absl::Status RunRank(int rank, const std::string& scheduler) const {
    ASSIGN_OR_RETURN(const JobOptions job, JobOf(rank, scheduler));
    if (rank >= num_workers()) return benchmark_.serve(job);
    ASSIGN_OR_RETURN(const std::unique_ptr<WorkerGroup> group,
                     JoinWorkers(job));
    if (rank == 0 && job.path.transport.connections == kAutoConnections) {
      SayDecision(group->data_path().plan, Decision::Kind::kConnections);
    }
    RETURN_IF_ERROR(benchmark_.work(options_, *group));
    group->Leave();
    return absl::OkStatus();
  }

  absl::StatusOr<JobOptions> JobOf(int rank,
                                   const std::string& scheduler) const {
    JobOptions job{
        .scheduler_address = scheduler,
        .job_id = kJob,
        .secret = secret_,
        .wanted_rank = rank < num_workers() ? rank : rank - num_workers(),
        .path = PathOptionsOf(options_, rank < num_workers() ? rank : -1),
        .timing = {.join = TimeoutOf(options_)},
        .operation_timeout = TimeoutOf(options_),
        .facts = benchmark_.facts,
        .metrics = options_.numbers,
        .flight = flight_};
    job.facts.insert(job.facts.end(),
                     {{"--ranks", absl::StrCat(options_.ranks)},
                      {"--size", options_.size_text},
                      {"--warmup", absl::StrCat(options_.warmup)},
                      {"--check", options_.checks ? "on" : "off"}});
    if (benchmark_.settle) RETURN_IF_ERROR(benchmark_.settle(job));
    return job;
  }

  NetworkOptions options_;
  const std::vector<std::string>& words_;
  const Benchmark& benchmark_;
  int core_;
  const Secret secret_;
  const std::shared_ptr<FlightLog> flight_;  // shared by ranks in this process
  const WriteBySignal records_;
  ChildProcesses others_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Scheduler>> StartIfFirst(
    const std::string& host_port, SchedulerOptions options) {
  ASSIGN_OR_RETURN(const HostPort place, ParseHostPort(host_port));
  ASSIGN_OR_RETURN(const std::vector<SocketAddress> addresses,
                   Resolve(place.host, place.port));
  for (const SocketAddress& address : addresses) {
    ASSIGN_OR_RETURN(const HostPort number, ParseHostPort(ToString(address)));
    if (number.host == "0.0.0.0" || number.host == "::") {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", place.host, "\" names no host"));
    }
    if (!IsOwn(number.host)) continue;
    options.bind_address = number.host;
    options.port = number.port;
    auto scheduler = Scheduler::Start(options);
    if (!absl::IsAlreadyExists(scheduler.status())) return scheduler;
    return nullptr;
  }
  return nullptr;
}

absl::Status RunRanks(NetworkOptions options,
                      const std::vector<std::string>& words,
                      const Benchmark& benchmark) {
  ASSIGN_OR_RETURN(const Secret secret, SecretOf(options, kJob));
  ASSIGN_OR_RETURN(const auto metrics,
                   StartMetrics(options.metrics, NameOf(options),
                                options.path.transport.bind_address,
                                !options.secret_file.empty()));
  options.numbers = RegistryOf(metrics);
  if (options.rank >= 0) {
    RETURN_IF_ERROR(FindBind(options, nullptr));
    return Launch(options, words, benchmark, options.rank, secret).RunPlaced();
  }
  if (AreThreads(options)) {
    return Launch(options, words, benchmark, 0, secret).RunThreads();
  }
  ASSIGN_OR_RETURN(const std::optional<Placement> placement, LaunchedAs());
  if (!placement.has_value()) {
    RETURN_IF_ERROR(FindBind(options, nullptr));
    Launch launch(options, words, benchmark, 0, secret);
    return options.rendezvous.empty() || options.ranks < 2
               ? launch.RunAll()
               : launch.RunOneOfTwo();
  }
  options.rank = placement->rank;
  options.ranks = placement->world_size * (options.has_companions ? 2 : 1);
  if (options.rendezvous.empty() && !placement->scheduler_host.empty()) {
    options.rendezvous =
        FormatHostPort(placement->scheduler_host, placement->scheduler_port);
  }
  RETURN_IF_ERROR(FindBind(options, &*placement));
  Launch launch(options, words, benchmark, placement->local_rank, secret);
  return options.rendezvous.empty() ? launch.RunByPmix() : launch.RunPlaced();
}

absl::Status RunAlone(const NetworkOptions& options,
                      const std::function<absl::Status()>& body) {
  RETURN_IF_ERROR(CheckPage(options));
  if (options.pins) PinToCore(0);
  return body();
}

absl::StatusOr<std::optional<Placement>> LaunchedAs() {
  absl::StatusOr<std::optional<Placement>> placement = PlacementOfLauncher();
  if (!placement.ok() || !placement->has_value()) return placement;
  const Placement& found = **placement;
  if (found.world_size < 1 || found.rank < 0) return std::nullopt;
  return placement;
}

bool AreThreads(const NetworkOptions& options) {
  return options.path.transport.name == "inproc";
}

absl::StatusOr<bool> StartsAll(const NetworkOptions& options) {
  if (AreThreads(options)) return true;
  if (options.rank >= 0 || !options.rendezvous.empty()) return false;
  ASSIGN_OR_RETURN(const std::optional<Placement> placement, LaunchedAs());
  return !placement.has_value();
}

}  // namespace telegrad::perf
