#include "kvstore/job/path/data_path.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
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

// "lo" for loopback; empty: unknown.
std::string InterfaceOf(const TransportOptions& transport) {
  const absl::StatusOr<SocketAddress> address =
      ParseIp(transport.bind_address, 0);
  if (address.ok() && IsLoopback(*address)) return "lo";
  return DeviceOfAddress(transport.bind_address).value_or("");
}

// With some number of connections, where the planner chooses it.
TransportOptions WithConnections(TransportOptions transport) {
  transport.connections = std::max<size_t>(1, transport.connections);
  return transport;
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
  TransportOptions bare = options;  // the key is not there yet
  bare.encryption = Encryption::kOff;
  return MakeTransport(bare, &nobody).status();
}

absl::StatusOr<Plan> MakePath(const PathRequest& path) {
  absl::StatusOr<Plan> plan = PlanPath(path.machines, path.request);
  if (!plan.ok()) return NoCommonPath(plan.status().message());
  const std::string& told = path.request.network.value;
  if (path.request.given == nullptr && plan->network == NetworkKind::kTcp &&
      !IsOpenTransport(told) &&
      plan->transport != TransportOf(NetworkKind::kTcp) &&
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
  basis.request.is_link_of_each_worker = options.transport.link_bytes_per_s > 0;
  basis.request.link_gbps = 8e-9 * options.transport.link_bytes_per_s;
  basis.request.link_latency_s = options.transport.link_latency_s;
  for (const std::string& note : basis.notes) LogWarning("plan: ", note);
  return MakePath(basis);
}

// What `self` does to follow the plan.
void Follow(const MemberFacts& self, const PathOptions& options,
            DataPath& path) {
  const TransportOptions& told = options.transport;
  const HostSettings settings = Apply(path.plan, self.label());
  TransportOptions& transport = path.transport = told;
  transport.name = path.plan.transport;
  transport.tls = path.plan.tls;
  transport.connections =
      static_cast<size_t>(std::max(1, path.plan.connections));
  if (told.memory != "host") path.memory = MemoryPath::kGdr;
  if (self.interface == "lo" || !self.machine.ok()) return;
  transport.rdma_ports =
      PortsNear(*self.machine, options.gpu_bus_id, settings.rdma_ports);
  transport.gid_rows = settings.gid_rows;
  if (!self.gdr.empty() && settings.memory >= MemoryPath::kGdrReceive) {
    path.memory = settings.memory;
    transport.memory = "direct";
  }
}

// Bytes from a network: each worker has a rank that pushes for itself.
absl::Status CheckPushers(const std::vector<int>& pushers, size_t num_workers) {
  bool is_right = pushers.empty() || pushers.size() == num_workers;
  for (size_t i = 0; is_right && i < pushers.size(); ++i) {
    const auto of = static_cast<size_t>(pushers[i]);
    is_right = pushers[i] >= 0 && of <= i && pushers[of] == pushers[i];
  }
  if (is_right) return absl::OkStatus();
  return NoCommonPath(
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

std::vector<int> RanksByPlace(const Plan& plan, size_t num_workers) {
  std::vector<int> ranks = RanksThatPush(plan, num_workers);
  for (size_t rank = 0; rank < plan.pushers.size(); ++rank) {
    if (plan.pushers[rank] != static_cast<int>(rank)) {
      ranks.push_back(static_cast<int>(rank));
    }
  }
  return ranks;
}

double DataPath::link_bytes_per_s() const {
  if (transport.link_bytes_per_s > 0) return transport.link_bytes_per_s;
  return plan.network == NetworkKind::kLocal ? 0 : plan.link_bytes_per_s;
}

bool DataPath::IsUnchecked(const TransportContext& context,
                           EndpointId endpoint) const {
  return context.IsInMemory(endpoint) || context.IsSealed(endpoint) ||
         (UsesGdr(plan) && context.ChecksPackets(endpoint));
}

absl::Status CheckPath(const TransportOptions& options) {
  TransportOptions one = WithConnections(options);
  if (IsOpenTransport(one.name)) return CheckOpenTransport(one);
  one.name = TransportNamed(one.name);
  return CheckTransport(one);
}

absl::StatusOr<MemberFacts> LookAtSelf(const PathOptions& options,
                                       absl::string_view name) {
  const TransportOptions& transport = options.transport;
  MemberFacts facts{.name = std::string(name),
                    .host = OwnHostName(),
                    .boot_id = OwnBootId(),
                    .interface = InterfaceOf(transport),
                    .transport = transport.name,
                    .tls = transport.tls,
                    .rails = static_cast<int>(transport.rails.size()),
                    .tier_one = options.tier_one};
  facts.network_namespace = OwnNetworkNamespace();
  if (transport.connections != kAutoConnections) {
    facts.connections = static_cast<int>(NumConnections(transport));
  }
  if (options.given != nullptr) facts.plan = options.given->plan.digest;
  RETURN_IF_ERROR(CheckPath(transport));
  if (IsOpenTransport(transport.name)) {
    for (const std::string& each :
         TransportsToChoose(facts.interface == "lo")) {
      TransportOptions one = WithConnections(transport);
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
    if (!report.boot_id.empty()) facts.boot_id = report.boot_id;
    facts.machine = std::move(report.machine);
  }
  if (!options.host.empty()) facts.host = options.host;
  // Payloads that cards read cannot be sealed.
  const bool is_open = transport.encryption == Encryption::kAuto ||
                       transport.encryption == Encryption::kOff;
  if (options.gdr.has_value()) {
    facts.gdr = Name(is_open ? *options.gdr : GdrWish::kOff);
  }
  return facts;
}

absl::StatusOr<DataPath> AgreeOnPath(Job& job, const PathOptions& options,
                                     const Secret& secret, TimePoint deadline) {
  RETURN_IF_ERROR(CheckEncryption(options.transport, secret.has_key()));
  const NodeId id = job.membership().self;
  const std::string name = ToString(id);
  ASSIGN_OR_RETURN(const MemberFacts self, LookAtSelf(options, name));
  RETURN_IF_ERROR(job.Post(absl::StrCat("about/", name), ToText(self)));
  DataPath path;
  if (id == NodeId{Role::kWorker, 0}) {
    ASSIGN_OR_RETURN(path.plan, PlanForAll(job, options, deadline, path.basis));
    ASSIGN_OR_RETURN(const std::string text,
                     PlanToJson(path.plan, kMaxGatherBytes));
    RETURN_IF_ERROR(job.Post("plan", text));
  } else {
    ASSIGN_OR_RETURN(const std::string text, job.Read("plan", deadline));
    absl::StatusOr<Plan> plan = PlanFromJson(text);
    if (!plan.ok()) {
      return NoCommonPath(
          absl::StrCat("of worker/0: ", plan.status().message()));
    }
    path.plan = *std::move(plan);
  }
  RETURN_IF_ERROR(
      CheckPushers(path.plan.pushers, job.membership().workers.size()));
  Follow(self, options, path);
  path.transport.key = secret.ForConnections();
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

}  // namespace telegrad
