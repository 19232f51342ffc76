#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "trainer/cluster.h"
#include "trainer/fatal_exit.h"
#include "trainer/process_title.h"
#include "trainer/worker_run.h"
#include "transport/placement.h"

namespace telegrad {
namespace {

// What this process is, in a job that somebody else launched.
struct Parts {
  bool is_scheduler = false;
  int server_rank = -1;  // -1: none; -2: the scheduler gives it
  int worker_rank = -1;
};
constexpr int kAnyRank = -2;

// A port from which on `count` ports are free on this machine.
absl::StatusOr<int> FindFreePorts(int count) {
  for (int attempt = 0; attempt < 64; ++attempt) {
    std::vector<int> sockets;
    int base = 0;
    for (int i = 0; i < count; ++i) {
      const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      address.sin_port = htons(static_cast<uint16_t>(i == 0 ? 0 : base + i));
      sockets.push_back(fd);
      if (bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) !=
          0) {
        base = 0;
        break;
      }
      socklen_t size = sizeof(address);
      getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
      if (i == 0) base = ntohs(address.sin_port);
      if (base + count > 65535) base = 0;
      if (base == 0) break;
    }
    for (const int fd : sockets) close(fd);
    if (base != 0) return base;
  }
  return absl::UnavailableError(
      absl::StrCat("no ", count, " free ports in a row"));
}

absl::StatusOr<Parts> FindParts(const Placement& placement,
                                TrainOptions& options) {
  Parts parts;
  if (placement.role.has_value()) {
    options.workers = placement.num_workers;
    options.servers = placement.num_servers;
    parts.is_scheduler = *placement.role == Role::kScheduler;
    const int rank = placement.rank >= 0 ? placement.rank : kAnyRank;
    if (*placement.role == Role::kServer) parts.server_rank = rank;
    if (*placement.role == Role::kWorker) parts.worker_rank = rank;
    return parts;
  }
  const int dedicated = options.has_servers ? options.servers : 0;
  if (dedicated >= placement.world_size) {
    return absl::InvalidArgumentError(absl::StrCat("--servers ", dedicated,
                                                   " of ", placement.world_size,
                                                   " ranks leaves no worker"));
  }
  options.workers = placement.world_size - dedicated;
  options.servers = dedicated > 0 ? dedicated : placement.world_size;
  parts.is_scheduler = placement.rank == 0;
  if (placement.rank < options.workers) {
    parts.worker_rank = placement.rank;
    if (dedicated == 0) parts.server_rank = placement.rank;
  } else {
    parts.server_rank = placement.rank - options.workers;
  }
  return parts;
}

// "host:port" of the first run's scheduler; run i uses port + i.
absl::StatusOr<std::string> FindScheduler(const Placement& placement,
                                          const TrainOptions& options,
                                          int num_runs) {
  if (!placement.scheduler_host.empty()) {
    return absl::StrCat(placement.scheduler_host, ":",
                        placement.scheduler_port);
  }
  std::string mine;
  if (placement.rank == 0) {
    ASSIGN_OR_RETURN(const int port, FindFreePorts(num_runs));
    mine = absl::StrCat(options.bind, ":", port);
  }
  return ExchangeOverPmix(placement.rank, mine,
                          static_cast<int>(options.join_timeout_s));
}

class PlacedRun {
 public:
  PlacedRun(const TrainOptions& options, const Parts& parts,
            const PlannedRun& run, MachineDetection& detection,
            std::string job_id, std::string host, int port)
      : options_(options),
        parts_(parts),
        run_(run),
        detection_(detection),
        job_id_(std::move(job_id)),
        host_(std::move(host)),
        port_(port) {}

  // Every part of this process until the run's end.
  absl::Status Run(TrainObserver& observer) {
    std::thread server;
    ASSIGN_OR_RETURN(DistOptions dist, MakeDistOptions(options_, job_id_));
    dist.scheduler_address = absl::StrCat(host_, ":", port_);
    dist.on_fatal = FatalExit();
    ASSIGN_OR_RETURN(const std::unique_ptr<Scheduler> scheduler,
                     StartScheduler(dist));
    const bool is_member = parts_.worker_rank != -1 || parts_.server_rank != -1;
    if (is_member) detection_.Steer(dist.transport);
    if (parts_.server_rank != -1) {
      server = std::thread([this, dist] { Serve(dist); });
    }
    if (parts_.worker_rank != -1) Work(dist, observer);
    if (server.joinable()) server.join();
    if (scheduler == nullptr) return absl::OkStatus();
    FatalEvent event;
    if (!scheduler->Wait(&event).ok()) {
      event.self = ToString({Role::kScheduler, 0});
      ExitFatally(event);
    }
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<std::unique_ptr<Scheduler>> StartScheduler(
      const DistOptions& dist) {
    if (!parts_.is_scheduler) return nullptr;
    return Scheduler::Start({.num_workers = options_.workers,
                             .num_servers = options_.servers,
                             .bind_address = options_.bind,
                             .port = port_,
                             .job_id = job_id_,
                             .secret = dist.secret,
                             .insecure = options_.insecure,
                             .timing = dist.timing});
  }

  void Serve(DistOptions dist) {
    dist.wanted_rank = parts_.server_rank == kAnyRank ? -1 : parts_.server_rank;
    const absl::Status status =
        RunServer({.dist = dist, .about = AboutMachine(detection_.Get())});
    if (!status.ok()) {
      ExitWithStatus(status, {Role::kServer, dist.wanted_rank});
    }
  }

  void Work(DistOptions dist, TrainObserver& observer) {
    dist.wanted_rank = parts_.worker_rank == kAnyRank ? -1 : parts_.worker_rank;
    const absl::Status status = RunAsWorker(options_, *run_.setting, run_.seed,
                                            dist, detection_, observer);
    if (!status.ok()) {
      ExitWithStatus(status, {Role::kWorker, dist.wanted_rank});
    }
  }

  const TrainOptions& options_;
  const Parts& parts_;
  const PlannedRun& run_;
  MachineDetection& detection_;
  const std::string job_id_;
  const std::string host_;
  const int port_;
};

std::string TitleOf(const Parts& parts) {
  std::string title;
  const auto add = [&title](const std::string& part) {
    absl::StrAppend(&title, title.empty() ? "" : ", ", part);
  };
  const auto rank = [](int value) {
    return value >= 0 ? absl::StrCat(" ", value) : std::string();
  };
  if (parts.worker_rank != -1) add("worker" + rank(parts.worker_rank));
  if (parts.server_rank != -1) add("server" + rank(parts.server_rank));
  if (parts.is_scheduler) add("scheduler");
  return title;
}

absl::Status RunAll(TrainOptions& options, const Placement& placement) {
  ASSIGN_OR_RETURN(const Parts parts, FindParts(placement, options));
  SetProcessTitle(TitleOf(parts));
  SetLogName(TitleOf(parts));
  MachineDetection detection(options.bind);
  const std::vector<PlannedRun> runs = PlanRuns(options);
  ASSIGN_OR_RETURN(
      const std::string address,
      FindScheduler(placement, options, static_cast<int>(runs.size())));
  const std::pair<std::string, std::string> pair = absl::StrSplit(
      address, absl::ByLength(static_cast<int>(address.rfind(':'))));
  int port = 0;
  if (pair.second.empty() || !absl::SimpleAtoi(pair.second.substr(1), &port)) {
    return absl::InvalidArgumentError(
        absl::StrCat("scheduler address '", address, "'"));
  }
  const std::string job =
      options.job_id.empty() ? placement.job_id : options.job_id;
  std::vector<RunSummary> results;
  for (size_t i = 0; i < runs.size(); ++i) {
    ConsoleObserver observer(runs[i].label, ConsoleObserver::Style::kLines);
    RETURN_IF_ERROR(PlacedRun(options, parts, runs[i], detection,
                              absl::StrCat(job, "-", i), pair.first,
                              port + static_cast<int>(i))
                        .Run(observer));
    if (observer.has_summary()) results.push_back(observer.summary());
  }
  PrintResults(options, results);
  return absl::OkStatus();
}

}  // namespace

int RunPlaced(TrainOptions options, const Placement& placement) {
  const absl::Status status = RunAll(options, placement);
  if (!status.ok()) {
    FatalEvent event{.code = ExitCodeOf(status)};
    event.message = std::string(status.message());
    event.self =
        ToString({placement.role.value_or(Role::kWorker), placement.rank});
    ExitFatally(event);
  }
  return 0;
}

}  // namespace telegrad
