#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/clock.h"
#include "base/exit_code.h"
#include "transport/node.h"
#include "transport/secret.h"

// The control plane: the scheduler lets processes join, gives ranks and
// addresses, checks that all agree, watches heartbeats and tells everyone when
// somebody dies. It runs over its own TCP connections, never over the data
// transport. docs/wire_format.md has its messages.
namespace telegrad {

// Facts on which all members must agree ("threshold" -> "0.5"), in order.
using Facts = std::vector<std::pair<std::string, std::string>>;

struct ControlTiming {
  Duration join = std::chrono::seconds(60);  // until everyone has joined
  Duration heartbeat = std::chrono::seconds(1);
  Duration dead = std::chrono::seconds(10);     // silence that means death
  Duration teardown = std::chrono::seconds(3);  // until a member must be gone
};

// Why a job ends early; what the fatal line of each process says.
struct FatalEvent {
  ExitCode code = ExitCode::kInternal;
  std::string message = {};            // for humans; names ranks and values
  std::vector<std::string> dead = {};  // "worker/2@host:pid"
  int64_t detect_ms = 0;            // from the last sign of life to the verdict
  std::string details_json = "{}";  // further fields, an object
  // Who says so; a ControlClient fills these in before on_fatal.
  std::string self = {};  // "worker/0", "launcher"
  uint64_t epoch = 0;
  int64_t step = 0;
};

// One line, no newline: {"event":"fatal","code":20,"reason":"peer_died",
// "dead":[...],"detect_ms":412,"epoch":1,"step":117,"self":"worker/0",
// "message":...} and the details.
std::string FatalLine(const FatalEvent& event);

struct Member {
  NodeId id;
  std::string host;
  int pid = 0;
  std::string data_address;  // of its TransportContext; servers only
};

// What a member can use for its data, by the transports' names, best first.
struct TransportOffers {
  std::vector<std::string> names = {};      // none: it takes what others do
  std::vector<std::string> addresses = {};  // servers: of each, as data_address
  std::string why = {};  // of the first: "no card here does RDMA"
  // To each peer. Where they are open, the job takes what others were given,
  // else the most that one finds for itself, and why.
  size_t connections = 1;
  bool is_open = false;
  std::string connections_why = {};  // "bond0: a bond spreads by connection"
  // Open ones of servers: `addresses` take one connection, these several.
  std::vector<std::string> striped_addresses = {};
};

struct Membership {
  uint64_t epoch = 1;
  NodeId self;
  std::vector<Member> workers;  // by rank
  std::vector<Member> servers;
  std::string shared;  // what worker 0 gave as JoinRequest::shared
  // The first of worker 0's offers that all members have which offer any, and
  // who lacks a better one, if somebody does: "worker/1 on b cannot use ucx:
  // no card here does RDMA".
  std::string transport;
  std::string transport_reason;
  // To each peer, of all members that offer transports (0: nobody does), and
  // whose they are: "of worker/1 on b: bond0: ..."; empty: as was asked for.
  size_t connections = 0;
  std::string connections_reason;
};

struct SchedulerOptions {
  int num_workers = 1;
  int num_servers = 1;
  std::string bind_address = "127.0.0.1";
  int port = 0;  // 0: any free one
  std::string job_id = "local";
  Secret secret;
  bool insecure = false;  // non-loopback without a secret, by explicit wish
  ControlTiming timing;
};

// Runs on threads of its own from Start on.
class Scheduler {
 public:
  // Fails with exit code 30 for a non-loopback address without a secret.
  static absl::StatusOr<std::unique_ptr<Scheduler>> Start(
      const SchedulerOptions& options);
  virtual ~Scheduler() = default;
  // "127.0.0.1:40123".
  virtual std::string address() const = 0;
  // Blocks until all workers have left in order and the servers were told to
  // end (OK), or the job failed (the same event that all members were told).
  virtual absl::Status Wait(FatalEvent* event) = 0;
  // Ends the job for everyone, as ControlClient::Fail does.
  virtual void Fail(const FatalEvent& event) = 0;
};

struct JoinRequest {
  std::string scheduler_address;
  Role role = Role::kWorker;
  int wanted_rank = -1;         // -1: the scheduler chooses
  std::string data_address;     // servers: where workers connect
  TransportOffers offers = {};  // where it depends on the transport
  Facts facts;
  // From worker 0 to all, at most 4 MiB; from a server to workers that ask, at
  // most 1 MiB.
  std::string shared;
  std::string job_id = "local";
  Secret secret;
  ControlTiming timing;
  // Called once, on the control thread, when the job fails. It may end the
  // process.
  std::function<void(const FatalEvent&)> on_fatal;
};

// A member's connection to the scheduler, with a heartbeat thread of its own.
// Thread-safe.
class ControlClient {
 public:
  // Returns when everyone has joined. Errors carry exit codes: 25 join
  // deadline (names who is missing), 30 authentication, 31 facts differ or no
  // transport is offered by all (names both members and both values), 24
  // scheduler unreachable.
  static absl::StatusOr<std::unique_ptr<ControlClient>> Join(
      const JoinRequest& request);
  virtual ~ControlClient() = default;

  virtual const Membership& membership() const = 0;

  // Every worker calls it with the same `name`; each gets all payloads by rank.
  // A payload is at most 1 MiB. It is a barrier, too.
  virtual absl::StatusOr<std::vector<std::string>> GatherWorkers(
      absl::string_view name, absl::string_view payload,
      TimePoint deadline) = 0;

  // A worker gets what server `rank` gave as JoinRequest::shared. More than 16
  // times the number of servers in a job are refused, which ends it (31).
  virtual absl::StatusOr<std::string> AskServer(int rank,
                                                TimePoint deadline) = 0;

  // Ends the job for everyone with `event` (its code, message, details).
  virtual void Fail(const FatalEvent& event) = 0;

  // The data plane has lost `peer`: the scheduler judges and, when it is truly
  // gone, on_fatal follows within a second or so.
  virtual void SuspectPeer(NodeId peer, absl::string_view why) = 0;

  // Shown in heartbeats and in the fatal line.
  virtual void SetStep(int64_t step) = 0;

  // Orderly end of this member. Workers: call it after the last operation.
  virtual void Leave() = 0;

  // Servers: blocks until all workers have left or `deadline`.
  virtual absl::Status WaitForEnd(TimePoint deadline) = 0;
};

}  // namespace telegrad
