#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "kvstore/job/control/job.h"
#include "kvstore/job/control/secret.h"
#include "kvstore/job/path/path_options.h"
#include "topology/machine.h"
#include "topology/plan.h"
#include "transport/transport.h"

// How the members of a job come to one way for their data: each posts what it
// sees and what it was told, worker 0 plans for all, the plan is posted, and
// every member does what it says.
namespace telegrad {

// Why nothing is known of a machine at which nobody was to look.
inline absl::Status NotLookedAt() {
  return absl::NotFoundError("not looked at");
}

// What one member knows of the machine that it runs on.
struct MachineReport {
  std::string host = {};
  std::string boot_id = {};  // tells machines of one name apart; may be empty
  absl::StatusOr<Machine> machine = NotLookedAt();
};

// What others need to know of a member and its PathOptions.
struct MemberFacts {
  std::string name = {};  // "worker/1"
  std::string host = {};
  std::string boot_id = {};
  // Interface with the bind address; "lo": loopback.
  std::string interface = {};
  std::vector<std::string> transports = {};  // transports that can be made here
  std::string lacks = {};      // why others of this build cannot: "ucx: ..."
  std::string transport = {};  // what it was told; "auto": nothing
  std::string tls = {};
  int rails = 0;
  int connections = 0;                // 0: open
  std::optional<bool> tier_one = {};  // what it was told; none: nothing
  std::string gdr = {};  // "auto", "on", "off"; empty: no tensor on a GPU
  // Members of one host in one of these reach each other by loopback.
  std::string network_namespace = {};
  std::string plan = {};  // digest of the given one; empty: none
  // Evidence, environment and addresses left out.
  absl::StatusOr<Machine> machine = NotLookedAt();

  // The name of its machine in plans.
  const std::string& label() const {
    return machine.ok() && !machine->host.empty() ? machine->host : host;
  }
};

// `name` as a member's of the job. Makes each transport that it may use once.
// An error where the one that it was told cannot be made.
absl::StatusOr<MemberFacts> LookAtSelf(const PathOptions& options,
                                       absl::string_view name);

inline bool IsOpenTransport(absl::string_view name) {
  return name.empty() || absl::EqualsIgnoreCase(name, "auto");
}

std::string ToText(const MemberFacts& facts);
// Parses any bytes; an error names the member and carries exit code 31.
absl::StatusOr<MemberFacts> ParseMemberFacts(absl::string_view name,
                                             absl::string_view text);

// The transport that a name stands for: a network's, or its own.
std::string TransportNamed(const std::string& name);
// Exit code 31: members that no path suits, or bytes that are none.
absl::Status NoCommonPath(absl::string_view why);

// What a plan for all members starts from.
struct PathRequest {
  std::vector<Machine> machines = {};  // each once
  PlanRequest request = {};
  // What is missing: "nothing is known of the machine of worker/1 (b): ...".
  std::vector<std::string> notes = {};
};
// `members` are workers, then servers. What they were told are constraints;
// FailedPrecondition with exit code 31 names two that were told different
// things, and both. `given`: of worker 0.
absl::StatusOr<PathRequest> RequestPath(
    std::span<const MemberFacts> members,
    std::shared_ptr<const GivenPlan> given = nullptr);

// How data goes, as all members do it.
struct DataPath {
  TransportOptions transport = {};
  std::vector<std::string> server_addresses = {};  // workers': to connect to
  Plan plan = {};          // without tensors; of one process alone: empty
  PathRequest basis = {};  // worker 0 alone: what the plan was made from
  // How frames in the memory of this member's GPUs go.
  MemoryPath memory = MemoryPath::kHost;

  // The rate that members decide by, the same for all: the emulated link's,
  // else the plan's, per direction. 0: no port tells it, or nothing leaves the
  // machine.
  double link_bytes_per_s() const;
  // Whether frames to and from a peer need no checksum of their payload: they
  // stay in memory, or some in the job are in the memory of GPUs, where none is
  // computed, and the network checks its packets.
  bool IsUnchecked(const TransportContext& context, EndpointId endpoint) const;
};

// The ranks of workers that push, in order: all `num_workers`, or where workers
// of a host sum first one of each host, whoever asks. Servers count these.
std::vector<int> RanksThatPush(const Plan& plan, size_t num_workers);
// The ranks of all workers in the order in which servers know them: behind
// those that push come the others, which only read.
std::vector<int> RanksByPlace(const Plan& plan, size_t num_workers);

// After the join, by all members, who prove to each other on this path that
// they have the job's `secret`. Errors carry exit codes: 31 where there is no
// plan that suits all, with who stands in the way.
absl::StatusOr<DataPath> AgreeOnPath(Job& job, const PathOptions& options,
                                     const Secret& secret, TimePoint deadline);
// A server tells workers where it listens; a worker waits for all servers.
absl::Status PostAddress(Job& job, absl::string_view address);
absl::StatusOr<std::vector<std::string>> ReadAddresses(Job& job,
                                                       TimePoint deadline);

}  // namespace telegrad
