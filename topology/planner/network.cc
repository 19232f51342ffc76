#include "topology/planner/network.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "topology/path.h"

namespace telegrad {
namespace {

// The machines that cannot use a network, with their reasons; a few are named.
struct Lacking {
  size_t count = 0;
  std::string who = {};
  std::vector<Evidence> evidence = {};
};
Lacking FindLacking(std::span<const Machine* const> machines,
                    NetworkKind network) {
  Lacking lacking;
  std::vector<std::string> named;
  for (const Machine* machine : machines) {
    const Obstacle obstacle = WhyNot(*machine, network);
    if (obstacle.why.empty()) continue;
    if (++lacking.count > 3) continue;
    named.push_back(absl::StrCat(LabelOf(*machine), " (", obstacle.why, ")"));
    Append(obstacle.evidence, &lacking.evidence);
  }
  lacking.who = absl::StrJoin(named, ", ");
  if (lacking.count > named.size()) {
    absl::StrAppend(&lacking.who, " and ", lacking.count - named.size(),
                    " more");
  }
  return lacking;
}

class NetworkChooser {
 public:
  NetworkChooser(std::span<const Machine* const> machines,
                 const PlanRequest& request, Plan* plan)
      : machines_(machines), request_(request), plan_(*plan) {
    decision_.what = Decision::Kind::kNetwork;
  }

  absl::Status Choose() {
    RETURN_IF_ERROR(ReadConstraints());
    const std::optional<NetworkKind> rdma = CommonRdma();
    if (plan_.workers + plan_.servers <= 1) {
      TakeLocal(rdma);
    } else if (wish_.has_value()) {
      RETURN_IF_ERROR(TakeWish());
    } else if (machines_.empty()) {
      Take(NetworkKind::kTcp, "nothing is known of the machines");
    } else if (rdma.has_value()) {
      TakeRdma(*rdma);
    } else {
      TakeTcp();
    }
    FallBack();
    plan_.decisions.push_back(std::move(decision_));
    return absl::OkStatus();
  }

 private:
  // The flags that name what carries the data.
  absl::Status ReadConstraints() {
    const std::string& name = request_.network.value;
    const std::string& tls = request_.tls.value;
    ASSIGN_OR_RETURN(wish_, NetworkNamed(request_));
    if (wish_.has_value()) {
      transport_ = TraitsOf(*wish_).transport;
      why_ = request_.network.by;
    } else if (!name.empty() && !absl::EqualsIgnoreCase(name, "auto")) {
      transport_ = absl::AsciiStrToLower(name);
      why_ = request_.network.by;
    } else if (request_.tls.is_set()) {
      transport_ = tls == "tcp" ? "tcp" : tls == "shm" ? "ucx" : "ofi";
      why_ = request_.tls.by;
    } else if (request_.rails.is_set()) {
      wish_ = NetworkKind::kTcp;
      transport_ = "tcp";
      why_ = request_.rails.by;
    }
    if (transport_ == "tcp" || tls == "tcp") wish_ = NetworkKind::kTcp;
    if (transport_ == "ofi" && tls == "efa") wish_ = NetworkKind::kEfa;
    return absl::OkStatus();
  }

  bool Carries(const NetworkTraits& network) const {
    if (!IsRdma(network.kind) || request_.tls.value == "shm") return false;
    return transport_.empty() || transport_ == network.transport ||
           transport_ == "ofi";  // which has verbs
  }

  // The first RDMA network that all machines can use; warns of those that only
  // some can use, which helps nobody.
  std::optional<NetworkKind> CommonRdma() {
    if (machines_.empty()) return std::nullopt;
    for (const NetworkTraits& each : kNetworks) {
      if (!Carries(each)) continue;
      Lacking lacking = FindLacking(machines_, each.kind);
      if (lacking.count == 0) return each.kind;
      const auto speaks = [&](const Machine* machine) {
        return std::ranges::any_of(machine->nics, [&](const Nic& nic) {
          return std::ranges::any_of(nic.ports, [&](const Port& port) {
            return Speaks(nic, port, each.kind) && IsUp(port);
          });
        });
      };
      Append(lacking.evidence, &against_);
      const bool has_cards =
          std::ranges::any_of(machines_[0]->nics, [&](const Nic& nic) {
            return std::ranges::any_of(nic.ports, [&](const Port& port) {
              return Speaks(nic, port, each.kind);
            });
          });
      if (has_cards) {
        obstacles_.push_back(absl::StrCat(
            each.name, ": ", WhyNot(*machines_[0], each.kind).why));
      }
      if (std::ranges::none_of(machines_, speaks)) continue;
      lacking_.push_back(absl::StrCat(
          each.name, " is on ", machines_.size() - lacking.count, " of ",
          machines_.size(), " machines only, so none uses it: not on ",
          lacking.who));
    }
    return std::nullopt;
  }

  void Take(NetworkKind network, std::string why) {
    plan_.network = network;
    plan_.transport =
        transport_.empty() ? TraitsOf(network).transport : transport_;
    plan_.tls = request_.tls.value;
    const bool is_efa =
        network == NetworkKind::kEfa || wish_ == NetworkKind::kEfa;
    if (plan_.tls.empty() && is_efa) plan_.tls = "efa";
    decision_.choice = Name(network);
    decision_.why = std::move(why);
  }

  // By shared memory; where members may also meet by a card, by what drives it.
  void TakeLocal(std::optional<NetworkKind> rdma) {
    Take(NetworkKind::kLocal,
         absl::StrCat("one machine", why_.empty() ? "" : "; ", why_));
    if (transport_.empty() &&
        !std::ranges::all_of(machines_, [&](const Machine* each) {
          return BoundInterface(request_, *each) == "lo";
        })) {
      plan_.transport = TraitsOf(rdma.value_or(NetworkKind::kTcp)).transport;
    }
  }

  absl::Status TakeWish() {
    for (const Machine* machine : machines_) {
      const Obstacle obstacle = WhyNot(*machine, *wish_);
      // TCP finds its way where no card is known to speak it.
      if (obstacle.why.empty() || *wish_ == NetworkKind::kTcp) continue;
      return absl::FailedPreconditionError(
          absl::StrCat(Name(*wish_), " was asked for (", why_, "), but ",
                       LabelOf(*machine), " cannot use it: ", obstacle.why));
    }
    Take(*wish_, why_);
    ShowPorts();
    return absl::OkStatus();
  }

  void TakeRdma(NetworkKind rdma) {
    Take(rdma,
         absl::StrCat(why_, why_.empty() ? "" : "; ", "each of ",
                      machines_.size(), " machine(s) has an active port"));
    ShowPorts();
    if (rdma != NetworkKind::kRoceV2) return;
    plan_.warnings.push_back(
        "RoCEv2 needs flow control (PFC or ECN) on every switch; that is not "
        "known from the machines");
  }

  std::string WhyNoRdma() const {
    if (machines_.size() > 1) {
      return absl::StrCat("no RDMA network is usable on each of ",
                          machines_.size(), " machines");
    }
    return obstacles_.empty() ? "no card here does RDMA"
                              : absl::StrJoin(obstacles_, "; ");
  }

  // TCP can be had over cards that speak something else as well.
  void TakeTcp() {
    Take(NetworkKind::kTcp,
         absl::StrCat(why_, why_.empty() ? "" : "; ", WhyNoRdma()));
    decision_.evidence = std::move(against_);
    plan_.warnings.insert(plan_.warnings.end(), lacking_.begin(),
                          lacking_.end());
    for (const Machine* machine : machines_) {
      const Obstacle obstacle = WhyNot(*machine, NetworkKind::kTcp);
      if (obstacle.why.empty()) continue;
      plan_.warnings.push_back(
          absl::StrCat("TCP on ", LabelOf(*machine), ": ", obstacle.why));
    }
  }

  // The facts of each machine's best port.
  void ShowPorts() {
    for (const Machine* machine : machines_) {
      for (const Nic& nic : machine->nics) {
        const Port* port = UsablePort(nic, plan_.network);
        if (port == nullptr) continue;
        Append(port->state.why, &decision_.evidence);
        Append(port->chosen_gid.why, &decision_.evidence);
        break;
      }
    }
  }

  // A build may lack what would be best.
  void FallBack() {
    const std::vector<std::string>& all = request_.transports;
    if (all.empty() || !transport_.empty() ||
        std::ranges::find(all, plan_.transport) != all.end()) {
      return;
    }
    absl::StrAppend(&decision_.why, ", but ", plan_.transport,
                    " is not in every build");
    plan_.transport = "tcp";
    plan_.tls.clear();
    if (plan_.network == NetworkKind::kLocal) return;
    plan_.network = NetworkKind::kTcp;
    decision_.choice = Name(plan_.network);
  }

  std::span<const Machine* const> machines_;
  const PlanRequest& request_;
  Plan& plan_;
  Decision decision_;
  std::optional<NetworkKind> wish_;
  std::string transport_;  // the transport that flags name
  std::string why_;        // these flags
  std::vector<Evidence> against_;
  // Why the first machine's cards do not fit.
  std::vector<std::string> obstacles_;
  std::vector<std::string> lacking_;
};

}  // namespace

const char* Name(NetworkKind network) { return TraitsOf(network).name; }
const char* TransportOf(NetworkKind network) {
  return TraitsOf(network).transport;
}

std::vector<std::string> TransportsToChoose(bool is_loopback) {
  std::set<std::string> names;
  for (const NetworkTraits& each : kNetworks) {
    if (!is_loopback || !IsRdma(each.kind)) names.insert(each.transport);
  }
  return {names.begin(), names.end()};
}

absl::StatusOr<std::optional<NetworkKind>> ParseNetwork(
    absl::string_view text) {
  for (const NetworkTraits& each : kNetworks) {
    if (each.kind != NetworkKind::kLocal &&
        absl::EqualsIgnoreCase(text, each.name)) {
      return each.kind;
    }
  }
  for (const char* library : {"auto", "inproc", "ofi", "ucx"}) {
    if (absl::EqualsIgnoreCase(text, library)) return std::nullopt;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("no network '", text,
                   "'; there are TCP, IB, RoCEv2 and EFA, and auto, inproc, "
                   "ofi and ucx, which leave it to the machines"));
}

absl::StatusOr<std::optional<NetworkKind>> NetworkNamed(
    const PlanRequest& request) {
  const std::string& name = request.network.value;
  if (name.empty()) return std::nullopt;
  absl::StatusOr<std::optional<NetworkKind>> network = ParseNetwork(name);
  const std::vector<std::string>& all = request.transports;
  const bool is_transport = std::ranges::find(all, name) != all.end();
  if (!network.ok() && is_transport) return std::nullopt;
  return network;
}

absl::Status ChooseNetwork(std::span<const Machine* const> machines,
                           const PlanRequest& request, Plan* plan) {
  return NetworkChooser(machines, request, plan).Choose();
}

}  // namespace telegrad
