#include <map>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/status_macros.h"
#include "kvstore/job/path/data_path.h"

// What a plan for all members of a job starts from.
namespace telegrad {
namespace {

bool IsWorker(const MemberFacts& member) {
  return absl::StartsWith(member.name, RoleName(Role::kWorker));
}

// What a flag says of one member, against what another one was told.
template <typename T>
class Told {
 public:
  explicit Told(const char* what, const T& usual = {})
      : what_(what), usual_(usual) {}
  // Nothing where `is_open`.
  absl::Status Add(const MemberFacts& member, const T& value, bool is_open) {
    if (is_open) return absl::OkStatus();
    if (!value_.by.empty() && value_.value != value) {
      return NoCommonPath(absl::StrCat(what_, ": ", first_, " has ",
                                       value_.value, ", ", member.name, " has ",
                                       value, "; give all the same --", what_));
    }
    if (value_.by.empty()) {
      first_ = member.name;
      value_ = {value, value == usual_
                           ? absl::StrCat("the default of --", what_)
                           : absl::StrCat("--", what_, " ", value)};
    }
    return absl::OkStatus();
  }
  const Constraint<T>& value() const { return value_; }

 private:
  const char* what_;
  const T usual_;  // where the flag is not given
  std::string first_;
  Constraint<T> value_;
};

// Worker 0's is obeyed: another worker without it would not know its tensors.
absl::Status CheckGiven(std::span<const MemberFacts> members) {
  const MemberFacts& first = members.front();
  for (const MemberFacts& each : members) {
    if (each.plan == first.plan) continue;
    if (each.plan.empty() && !IsWorker(each)) continue;
    const auto has = [](const MemberFacts& member) {
      return member.plan.empty() ? "none" : member.plan.substr(0, 16);
    };
    return NoCommonPath(absl::StrCat("plan: ", first.name, " has ", has(first),
                                     ", ", each.name, " has ", has(each),
                                     "; give all workers the same --plan"));
  }
  return absl::OkStatus();
}

absl::Status TakeConstraints(std::span<const MemberFacts> members,
                             PlanRequest& request) {
  Told<std::string> transport("transport");
  Told<std::string> tls("tls");
  Told<int> rails("rails");
  Told<int> connections("connections", 1);
  Told<std::string> tier_one("tier1");
  for (const MemberFacts& each : members) {
    RETURN_IF_ERROR(
        transport.Add(each, each.transport, IsOpenTransport(each.transport)));
    RETURN_IF_ERROR(tls.Add(each, each.tls, each.tls.empty()));
    RETURN_IF_ERROR(rails.Add(each, each.rails, each.rails == 0));
    RETURN_IF_ERROR(
        connections.Add(each, each.connections, each.connections == 0));
    RETURN_IF_ERROR(tier_one.Add(each, each.tier_one == true ? "on" : "off",
                                 !IsWorker(each) || !each.tier_one));
  }
  request.network = transport.value();
  request.tls = tls.value();
  request.rails = rails.value();
  request.connections = connections.value();
  request.tier_one = {tier_one.value().value == "on", tier_one.value().by};
  return absl::OkStatus();
}

// Workers of a host sum in its memory: through it a GPU's gradient would take
// longer than its codes take between hosts.
absl::Status LeaveTierOneOut(const MemberFacts& on_gpu, PlanRequest& request) {
  Constraint<bool>& told = request.tier_one;
  const std::string why =
      absl::StrCat("tensors of ", on_gpu.name,
                   " are on a GPU, and workers of a host sum in its memory");
  if (!told.is_set()) {
    told = {false, why};
  } else if (told.value) {
    return NoCommonPath(absl::StrCat(told.by, ": ", why, "; leave it out"));
  }
  return absl::OkStatus();
}

// Takes what workers say whose tensors are on GPUs; without any, frames are in
// host memory.
absl::Status TakeGdr(std::span<const MemberFacts> members,
                     PlanRequest& request) {
  Told<std::string> gdr("gdr");
  const MemberFacts* on_gpu = nullptr;
  for (const MemberFacts& each : members) {
    RETURN_IF_ERROR(gdr.Add(
        each, each.gdr, each.gdr.empty() || each.gdr == Name(GdrWish::kAuto)));
    if (on_gpu == nullptr && !each.gdr.empty()) on_gpu = &each;
  }
  for (const GdrWish wish : {GdrWish::kOff, GdrWish::kOn}) {
    if (gdr.value().value == Name(wish)) request.gdr = wish;
  }
  if (on_gpu == nullptr) {
    request.host_memory = {true, "frames of this job are in host memory"};
    return absl::OkStatus();
  }
  return LeaveTierOneOut(*on_gpu, request);
}

// What every member can make, or what one was told, which binds all; who stands
// in the way is noted.
void TakeTransports(std::span<const MemberFacts> members, PathRequest& path) {
  std::vector<std::string>& common = path.request.transports;
  common = members.front().transports;
  for (const MemberFacts& each : members) {
    if (!each.lacks.empty()) {
      path.notes.push_back(absl::StrCat(each.name, " on ", each.host,
                                        " cannot make ", each.lacks));
    }
    std::erase_if(common, [&](const std::string& name) {
      return !absl::c_linear_search(each.transports, name);
    });
  }
  const Constraint<std::string>& told = path.request.network;
  if (told.is_set()) common = {TransportNamed(told.value)};
}

// Each machine once: the first member that knows it speaks for it.
void TakeMachines(std::span<const MemberFacts> members, PathRequest& path) {
  using HostKey = std::pair<std::string, std::string>;
  std::map<HostKey, const MemberFacts*> speakers;
  std::set<HostKey> with_workers;
  std::vector<HostKey> order;
  for (const MemberFacts& each : members) {
    const HostKey key = {each.host, each.boot_id};
    const MemberFacts*& speaker = speakers[key];
    if (speaker == nullptr) order.push_back(key);
    if (speaker == nullptr || (!speaker->machine.ok() && each.machine.ok())) {
      speaker = &each;
    }
    if (!IsWorker(each)) continue;
    with_workers.insert(key);
    path.request.worker_hosts.push_back(absl::StrCat(
        each.host, " ", each.boot_id, " ", each.network_namespace));
  }
  const bool is_any_looked_at =
      absl::c_any_of(members, [](const MemberFacts& each) {
        return each.machine.status() != NotLookedAt();
      });
  path.request.workers = static_cast<int>(with_workers.size());
  path.request.servers =
      static_cast<int>(speakers.size() - with_workers.size());
  for (const HostKey& key : order) {
    const MemberFacts& speaker = *speakers[key];
    const std::string label = speaker.label();
    if (speaker.machine.ok()) {
      path.machines.push_back(*speaker.machine);
      path.machines.back().host = label;
    } else if (speaker.interface != "lo" && is_any_looked_at) {
      path.notes.push_back(absl::StrCat(
          "nothing is known of the machine of ", speaker.name, " (",
          speaker.host, "), it is taken to be like the others: ",
          speaker.machine.status().message()));
    }
    path.request.bound[label] = speaker.interface;
  }
}

}  // namespace

absl::Status NoCommonPath(absl::string_view why) {
  return WithExitCode(ExitCode::kMismatch, absl::FailedPreconditionError(why));
}

std::string TransportNamed(const std::string& name) {
  const auto network = ParseNetwork(name);
  return network.ok() && network->has_value() ? TransportOf(**network) : name;
}

absl::StatusOr<PathRequest> RequestPath(
    std::span<const MemberFacts> members,
    std::shared_ptr<const GivenPlan> given) {
  PathRequest path;
  RETURN_IF_ERROR(CheckGiven(members));
  path.request.given = std::move(given);
  RETURN_IF_ERROR(TakeConstraints(members, path.request));
  RETURN_IF_ERROR(TakeGdr(members, path.request));
  TakeTransports(members, path);
  TakeMachines(members, path);
  const bool is_local = absl::c_all_of(
      members, [](const MemberFacts& each) { return each.interface == "lo"; });
  if (path.machines.empty() && !is_local && path.request.given == nullptr &&
      !path.request.network.is_set() && !path.request.tls.is_set()) {
    path.request.network = {TransportOf(NetworkKind::kTcp),
                            "nothing is known of the machines"};
  }
  return path;
}

}  // namespace telegrad
