#include "kvstore/data_path.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/log.h"
#include "base/network_device.h"
#include "base/socket.h"
#include "base/status_macros.h"
#include "topology/apply.h"
#include "transport/check_transport.h"

namespace telegrad {
namespace {

absl::Status Mismatch(absl::string_view text) {
  return WithExitCode(ExitCode::kMismatch, absl::FailedPreconditionError(text));
}

constexpr char kOpenTierOne[] = "auto";

// "lo" for loopback; empty: unknown.
std::string InterfaceOf(const TransportOptions& transport) {
  const absl::StatusOr<SocketAddress> address =
      ParseIp(transport.bind_address, 0);
  if (address.ok() && IsLoopback(*address)) return "lo";
  return DeviceOfAddress(transport.bind_address).value_or("");
}

bool IsAuto(absl::string_view name) {
  return name.empty() || absl::EqualsIgnoreCase(name, "auto");
}

bool IsWorker(const MemberFacts& member) {
  return absl::StartsWith(member.name, RoleName(Role::kWorker));
}

// The transport that a name stands for: a network's, or its own.
std::string TransportNamed(const std::string& name) {
  const auto network = ParseNetwork(name);
  return network.ok() && network->has_value() ? TransportOf(**network) : name;
}

// Whether a context can be made at all.
absl::Status Try(const TransportOptions& options) {
  class Nobody : public TransportHandler {
    void OnAccept(EndpointId) override {}
    absl::StatusOr<Bytes> OnHeader(EndpointId, ConstBytes, size_t) override {
      return absl::UnavailableError("not listening");
    }
    void OnMessage(EndpointId, ConstBytes, Bytes) override {}
    void OnClosed(EndpointId, const absl::Status&) override {}
  } nobody;
  return MakeTransport(options, &nobody).status();
}

// What a flag says of one member, against what another one was told.
template <typename T>
class Told {
 public:
  explicit Told(const char* what) : what_(what) {}
  // Nothing where `is_open`.
  absl::Status Add(const MemberFacts& member, const T& value, bool is_open) {
    if (is_open) return absl::OkStatus();
    if (!value_.by.empty() && value_.value != value) {
      return Mismatch(absl::StrCat(what_, ": ", first_, " has ", value_.value,
                                   ", ", member.name, " has ", value,
                                   "; give all the same --", what_));
    }
    if (value_.by.empty()) {
      first_ = member.name;
      value_ = {value, absl::StrCat("--", what_, " ", value)};
    }
    return absl::OkStatus();
  }
  const Constraint<T>& value() const { return value_; }

 private:
  const char* what_;
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
    return Mismatch(absl::StrCat("plan: ", first.name, " has ", has(first),
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
  Told<int> connections("connections");
  Told<std::string> tier_one("tier1");
  for (const MemberFacts& each : members) {
    RETURN_IF_ERROR(
        transport.Add(each, each.transport, IsAuto(each.transport)));
    RETURN_IF_ERROR(tls.Add(each, each.tls, each.tls.empty()));
    RETURN_IF_ERROR(rails.Add(each, each.rails, each.rails == 0));
    RETURN_IF_ERROR(
        connections.Add(each, each.connections, each.connections == 0));
    RETURN_IF_ERROR(tier_one.Add(
        each, each.tier_one, !IsWorker(each) || each.tier_one == kOpenTierOne));
  }
  request.network = transport.value();
  request.tls = tls.value();
  request.rails = rails.value();
  request.connections = connections.value();
  request.tier_one = {tier_one.value().value == "on", tier_one.value().by};
  return absl::OkStatus();
}

// What every member can make; who stands in the way is noted.
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
}

// The name of its machine in plans.
std::string LabelOf(const MemberFacts& facts) {
  return facts.machine.ok() && !facts.machine->host.empty()
             ? facts.machine->host
             : facts.host;
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
  path.request.workers = static_cast<int>(with_workers.size());
  path.request.servers =
      static_cast<int>(speakers.size() - with_workers.size());
  for (const HostKey& key : order) {
    const MemberFacts& speaker = *speakers[key];
    const std::string label = LabelOf(speaker);
    if (speaker.machine.ok()) {
      path.machines.push_back(*speaker.machine);
      path.machines.back().host = label;
    } else if (speaker.interface != "lo") {
      path.notes.push_back(absl::StrCat(
          "nothing is known of the machine of ", speaker.name, " (",
          speaker.host, "), it is taken to be like the others: ",
          speaker.machine.status().message()));
    }
    path.request.bound[label] = speaker.interface;
  }
}

absl::StatusOr<Plan> MakePath(const PathRequest& path) {
  absl::StatusOr<Plan> plan = PlanPath(path.machines, path.request);
  if (!plan.ok()) return Mismatch(plan.status().message());
  const std::string& told = path.request.network.value;
  if (path.request.given == nullptr && plan->network == NetworkKind::kTcp &&
      !IsAuto(told) && plan->transport != TransportOf(NetworkKind::kTcp) &&
      !absl::EqualsIgnoreCase(told, Name(NetworkKind::kTcp))) {
    LogWarning("transport: ", told, " goes over TCP here: ",
               FindDecision(*plan, Decision::Kind::kNetwork)->why,
               "; `telegrad-topo doctor` says more; --transport tcp is the "
               "same without this line");
  }
  return plan;
}

absl::StatusOr<Plan> PlanForAll(Job& job, const PathOptions& options,
                                TimePoint deadline, PathRequest& basis) {
  std::vector<MemberFacts> members;
  const Membership& membership = job.membership();
  for (const auto* all : {&membership.workers, &membership.servers}) {
    for (const Member& each : *all) {
      const std::string name = ToString(each.id);
      ASSIGN_OR_RETURN(const std::string text,
                       job.Read(absl::StrCat("about/", name), deadline));
      ASSIGN_OR_RETURN(MemberFacts facts, ParseMemberFacts(name, text));
      members.push_back(std::move(facts));
    }
  }
  ASSIGN_OR_RETURN(basis, RequestPath(members, options.given));
  for (const std::string& note : basis.notes) LogWarning("plan: ", note);
  return MakePath(basis);
}

// What `self` does to follow the plan.
TransportOptions Follow(const Plan& plan, const MemberFacts& self,
                        TransportOptions transport) {
  const RunSettings settings = Apply(plan, LabelOf(self));
  transport.name = settings.transport;
  transport.tls = settings.tls;
  transport.connections =
      static_cast<size_t>(std::max(1, settings.connections));
  if (self.interface == "lo" || !self.machine.ok()) return transport;
  transport.rdma_ports = settings.rdma_ports;
  transport.gid_rows = settings.gid_rows;
  return transport;
}

// Bytes from a network: each worker has a rank that pushes for itself.
absl::Status CheckPushers(const std::vector<int>& pushers, size_t num_workers) {
  bool is_right = pushers.empty() || pushers.size() == num_workers;
  for (size_t i = 0; is_right && i < pushers.size(); ++i) {
    const auto of = static_cast<size_t>(pushers[i]);
    is_right = pushers[i] >= 0 && of <= i && pushers[of] == pushers[i];
  }
  if (is_right) return absl::OkStatus();
  return Mismatch(
      "of worker/0: a plan whose workers push for others than those"
      " of the job");
}

}  // namespace

std::vector<int> RanksThatPush(const Plan& plan, size_t num_workers) {
  const bool all_push = plan.pushers.empty();
  const size_t count = all_push ? num_workers : plan.pushers.size();
  std::vector<int> ranks;
  for (int rank = 0; rank < static_cast<int>(count); ++rank) {
    if (all_push || plan.pushers[static_cast<size_t>(rank)] == rank) {
      ranks.push_back(rank);
    }
  }
  return ranks;
}

absl::Status CheckPath(const TransportOptions& options) {
  if (IsAuto(options.name)) return CheckOpenTransport(options);
  TransportOptions one = options;
  one.name = TransportNamed(options.name);
  return CheckTransport(one);
}

absl::StatusOr<MemberFacts> LookAtSelf(const PathOptions& options,
                                       absl::string_view name) {
  const TransportOptions& transport = options.transport;
  MemberFacts facts{.name = std::string(name),
                    .host = OwnHostName(),
                    .interface = InterfaceOf(transport),
                    .transport = transport.name,
                    .tls = transport.tls,
                    .rails = static_cast<int>(transport.rails.size()),
                    .tier_one = kOpenTierOne};
  if (options.tier_one.has_value()) {
    facts.tier_one = *options.tier_one ? "on" : "off";
  }
  facts.network_namespace = OwnNetworkNamespace();
  if (!options.has_auto_connections) {
    facts.connections = static_cast<int>(NumConnections(transport));
  }
  if (options.given != nullptr) facts.plan = options.given->plan.digest;
  RETURN_IF_ERROR(CheckPath(transport));
  if (IsAuto(transport.name)) {
    for (const std::string& each :
         TransportsToChoose(facts.interface == "lo")) {
      TransportOptions one = transport;
      one.name = each;
      if (!CheckTransport(one).ok()) continue;
      if (const absl::Status made = Try(one); made.ok()) {
        facts.transports.push_back(each);
      } else {
        absl::StrAppend(&facts.lacks, facts.lacks.empty() ? "" : "; ", each,
                        ": ", made.message());
      }
    }
  } else {
    facts.transports.push_back(TransportNamed(transport.name));
  }
  if (facts.interface != "lo" && options.look != nullptr) {
    MachineReport report = options.look();
    if (!report.host.empty()) facts.host = report.host;
    facts.boot_id = report.boot_id;
    facts.machine = std::move(report.machine);
  }
  if (!options.host.empty()) facts.host = options.host;
  return facts;
}

absl::StatusOr<PathRequest> RequestPath(
    std::span<const MemberFacts> members,
    std::shared_ptr<const GivenPlan> given) {
  PathRequest path;
  RETURN_IF_ERROR(CheckGiven(members));
  path.request.given = std::move(given);
  RETURN_IF_ERROR(TakeConstraints(members, path.request));
  path.request.host_memory = {true, "frames of this job are in host memory"};
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

absl::StatusOr<DataPath> AgreeOnPath(Job& job, const PathOptions& options,
                                     TimePoint deadline) {
  const NodeId id = job.membership().self;
  const std::string name = ToString(id);
  ASSIGN_OR_RETURN(const MemberFacts self, LookAtSelf(options, name));
  RETURN_IF_ERROR(job.Post(absl::StrCat("about/", name), ToText(self)));
  DataPath path;
  if (id == NodeId{Role::kWorker, 0}) {
    ASSIGN_OR_RETURN(const Plan plan,
                     PlanForAll(job, options, deadline, path.basis));
    ASSIGN_OR_RETURN(const std::string text, PlanToJson(plan, kMaxGatherBytes));
    RETURN_IF_ERROR(job.Post("plan", text));
  }
  ASSIGN_OR_RETURN(const std::string text, job.Read("plan", deadline));
  absl::StatusOr<Plan> plan = PlanFromJson(text);
  if (!plan.ok()) {
    return Mismatch(absl::StrCat("of worker/0: ", plan.status().message()));
  }
  path.plan = *std::move(plan);
  RETURN_IF_ERROR(
      CheckPushers(path.plan.pushers, job.membership().workers.size()));
  path.transport = Follow(path.plan, self, options.transport);
  return path;
}

absl::Status PostAddress(Job& job, absl::string_view address) {
  return job.Post(absl::StrCat("address/", ToString(job.membership().self)),
                  address);
}

absl::StatusOr<std::vector<std::string>> ReadAddresses(Job& job,
                                                       TimePoint deadline) {
  std::vector<std::string> addresses;
  for (const Member& each : job.membership().servers) {
    ASSIGN_OR_RETURN(
        addresses.emplace_back(),
        job.Read(absl::StrCat("address/", ToString(each.id)), deadline));
  }
  return addresses;
}

absl::StatusOr<DataPath> AgreeOnPath(const PathOptions& options, int rank,
                                     const GatherTexts& gather) {
  const auto name = [](size_t i) {
    return ToString(NodeId{Role::kWorker, static_cast<int>(i)});
  };
  ASSIGN_OR_RETURN(const MemberFacts self,
                   LookAtSelf(options, name(static_cast<size_t>(rank))));
  ASSIGN_OR_RETURN(const std::vector<std::string> texts, gather(ToText(self)));
  std::vector<MemberFacts> members;
  for (size_t i = 0; i < texts.size(); ++i) {
    ASSIGN_OR_RETURN(MemberFacts each, ParseMemberFacts(name(i), texts[i]));
    members.push_back(std::move(each));
  }
  DataPath path;
  ASSIGN_OR_RETURN(path.basis, RequestPath(members, options.given));
  ASSIGN_OR_RETURN(path.plan, MakePath(path.basis));
  path.transport = Follow(path.plan, self, options.transport);
  return path;
}

}  // namespace telegrad
