#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/exit_code.h"
#include "base/log.h"
#include "base/network_device.h"
#include "base/status_macros.h"
#include "kvstore/job/launch/placement.h"

// How the processes of a job that somebody else launched find each other.
namespace telegrad {
namespace {

absl::Status Usage(absl::string_view text) {
  return WithExitCode(ExitCode::kUsage, absl::InvalidArgumentError(text));
}

bool IsLoopbackAddress(const std::string& address) {
  const absl::StatusOr<SocketAddress> number = ParseIp(address, 0);
  return number.ok() && IsLoopback(*number);
}

// A name that nobody knows is not: connecting to it says what is wrong.
bool IsElsewhere(const std::string& host) {
  const auto addresses = Resolve(host, 1);
  return addresses.ok() && !absl::c_all_of(*addresses, IsLoopback);
}

absl::Status AwaitName(const std::string& host, double timeout_s) {
  const TimePoint deadline = Clock::now() + FromSeconds(timeout_s);
  TimePoint to_tell = Clock::now() + std::chrono::seconds(3);
  Duration pause = std::chrono::milliseconds(50);
  while (true) {
    const absl::Status found = Resolve(host, 1).status();
    if (found.ok()) return found;
    if (Clock::now() > to_tell) {
      LogInfo("--bind auto: ", found.message(),
              "; asking on, until --join-timeout ", timeout_s, " s");
      to_tell = TimePoint::max();
    }
    if (Clock::now() + pause >= deadline) {
      return WithExitCode(
          ExitCode::kJoinTimeout,
          absl::UnavailableError(absl::StrCat(
              "--bind auto: ", found.message(), ", until --join-timeout ",
              timeout_s, " s: is the scheduler's name right?")));
    }
    std::this_thread::sleep_for(pause);
    pause = std::min<Duration>(pause * 2, std::chrono::seconds(1));
  }
}

// Whether other hosts may look for this process though the scheduler is at
// loopback here: many systems give a host's own name such an address, and some
// launchers tell rank 0 "localhost" and the others its address.
bool IsForOthers(const Placement& placement) {
  const std::string& host = placement.scheduler_host;
  const bool is_own_name =
      !ParseIp(host, 1).ok() && !absl::StrContains(host, "localhost");
  return placement.num_hosts > 1 || is_own_name ||
         (placement.rank == 0 && placement.world_size > 1);
}

// A port of `host` from which on `count` ports are free.
absl::StatusOr<int> FindFreePorts(const std::string& host, int count) {
  for (int attempt = 0; attempt < 64; ++attempt) {
    std::vector<UniqueFd> listeners;
    int base = 0;
    for (int i = 0; i < count; ++i) {
      const int port = i == 0 ? 0 : base + i;
      if (port > 65535) break;
      ASSIGN_OR_RETURN(const SocketAddress address, ParseIp(host, port));
      absl::StatusOr<UniqueFd> listener = ListenOn(address);
      if (i == 0) RETURN_IF_ERROR(listener.status());
      if (!listener.ok()) break;
      listeners.push_back(*std::move(listener));
      if (i > 0) continue;
      ASSIGN_OR_RETURN(const SocketAddress bound,
                       LocalAddress(listeners[0].get()));
      ASSIGN_OR_RETURN(const HostPort parts, ParseHostPort(ToString(bound)));
      base = parts.port;
    }
    if (listeners.size() == static_cast<size_t>(count)) return base;
  }
  return absl::UnavailableError(
      absl::StrCat("no ", count, " free ports in a row"));
}

}  // namespace

absl::StatusOr<std::optional<Placement>> PlacementByHand(
    Role role, const std::string& scheduler, int num_workers, int num_servers) {
  absl::StatusOr<HostPort> where = ParseHostPort(scheduler);
  if (!where.ok()) {
    return Usage(absl::StrCat("--scheduler: ", where.status().message()));
  }
  return Placement{.launcher = "flags",
                   .role = role,
                   .num_workers = num_workers,
                   .num_servers = num_servers,
                   .scheduler_host = std::move(where->host),
                   .scheduler_port = where->port};
}

absl::StatusOr<Parts> PartsOf(const Placement& placement, int dedicated_servers,
                              bool workers_serve) {
  Parts parts;
  if (placement.role.has_value() && workers_serve) {
    return Usage(absl::StrCat(
        "--workers-serve is for launchers that start ranks: with ",
        placement.launcher, " each process has the one part that it is given"));
  }
  if (placement.role.has_value()) {
    parts.num_workers = placement.num_workers;
    // Without any, each worker has the part of one.
    parts.num_servers = placement.num_servers > 0 ? placement.num_servers
                                                  : placement.num_workers;
    parts.is_scheduler = *placement.role == Role::kScheduler;
    const int rank = placement.rank >= 0 ? placement.rank : Parts::kAnyRank;
    if (*placement.role == Role::kServer) parts.server_rank = rank;
    if (*placement.role == Role::kWorker) parts.worker_rank = rank;
    return parts;
  }
  if (dedicated_servers >= placement.world_size) {
    return Usage(absl::StrCat("--servers ", dedicated_servers, " of ",
                              placement.world_size, " ranks leaves no worker"));
  }
  workers_serve |= dedicated_servers == 0;
  parts.num_workers = placement.world_size - dedicated_servers;
  parts.num_servers = workers_serve ? placement.world_size : dedicated_servers;
  parts.is_scheduler = placement.rank == 0;
  const bool is_worker = placement.rank < parts.num_workers;
  if (is_worker) parts.worker_rank = placement.rank;
  if (workers_serve) {
    parts.server_rank = placement.rank;
  } else if (!is_worker) {
    parts.server_rank = placement.rank - parts.num_workers;
  }
  return parts;
}

std::string TitleOf(const Parts& parts) {
  std::string title;
  const auto add = [&title](absl::string_view part, int rank) {
    absl::StrAppend(&title, title.empty() ? "" : ", ", part);
    if (rank >= 0) absl::StrAppend(&title, " ", rank);
  };
  if (parts.worker_rank != Parts::kNone) add("worker", parts.worker_rank);
  if (parts.server_rank != Parts::kNone) add("server", parts.server_rank);
  if (parts.is_scheduler) add("scheduler", Parts::kNone);
  return title;
}

absl::StatusOr<std::string> BindAddress(const std::string& bind,
                                        const Placement* placement,
                                        double timeout_s) {
  const bool is_one_host = placement == nullptr || placement->num_hosts == 1;
  const std::string towards =
      is_one_host ? "127.0.0.1" : placement->scheduler_host;
  if (bind == "auto" && !towards.empty()) {
    RETURN_IF_ERROR(AwaitName(towards, timeout_s));
  }
  absl::StatusOr<std::string> address = OwnAddress(bind, towards);
  if (bind == "auto" && !is_one_host && address.ok() &&
      IsLoopbackAddress(*address) && IsForOthers(*placement)) {
    address = OwnAddress(bind, "");
  }
  if (!address.ok()) {
    return Usage(absl::StrCat("--bind ", address.status().message()));
  }
  if (is_one_host || !IsLoopbackAddress(*address)) return address;
  const std::string& scheduler = placement->scheduler_host;
  if (placement->num_hosts > 1 || IsElsewhere(scheduler)) {
    return Usage(absl::StrCat(
        scheduler.empty() ? "the job has several hosts"
                          : absl::StrCat("the scheduler is at ", scheduler),
        ", but this process would listen on loopback (", *address,
        "), which no other host reaches: give all processes --bind auto (or a "
        "network, as in --bind 10.0.0.0/8) and --secret-file"));
  }
  return address;
}

std::string SchedulerBindAddress(const std::string& bind_address,
                                 const Placement& placement) {
  const std::string& host = placement.scheduler_host;
  if (host.empty() || placement.num_hosts == 1 ||
      IsLoopbackAddress(bind_address)) {
    return bind_address;
  }
  const auto addresses = Resolve(host, 1);
  if (!addresses.ok()) return bind_address;
  for (const SocketAddress& address : *addresses) {
    const auto parts = ParseHostPort(ToString(address));
    if (parts.ok() && !IsLoopback(address) &&
        OwnAddress(parts->host, "").ok()) {
      return parts->host;
    }
  }
  return bind_address;
}

absl::StatusOr<HostPort> FindScheduler(const Placement& placement,
                                       const std::string& bind_address,
                                       int num_runs, int timeout_s) {
  if (!placement.scheduler_host.empty() && placement.num_hosts != 1) {
    return HostPort{placement.scheduler_host, placement.scheduler_port};
  }
  if (placement.scheduler_port != 0) {
    return HostPort{bind_address, placement.scheduler_port};
  }
  std::string mine;
  if (placement.rank == 0) {
    ASSIGN_OR_RETURN(const int port, FindFreePorts(bind_address, num_runs));
    mine = FormatHostPort(bind_address, port);
  }
  ASSIGN_OR_RETURN(const std::string address,
                   ExchangeOverPmix(placement.rank, mine, timeout_s));
  return ParseHostPort(address);
}

absl::StatusOr<std::vector<SocketAddress>> SchedulerAddresses(
    const std::string& host, int port) {
  ASSIGN_OR_RETURN(std::vector<SocketAddress> all, Resolve(host, port));
  if (!absl::c_all_of(all, IsLoopback)) return all;
  ASSIGN_OR_RETURN(const std::vector<std::string> outside, OutsideAddresses());
  for (const std::string& own : outside) {
    ASSIGN_OR_RETURN(all.emplace_back(), ParseIp(own, port));
  }
  return all;
}

}  // namespace telegrad
