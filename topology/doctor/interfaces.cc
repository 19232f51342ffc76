#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "topology/doctor/check.h"

namespace telegrad::doctor {
namespace {

using Kind = NetInterface::Kind;

// What a route between hosts may use.
bool IsCandidate(const NetInterface& net) {
  return net.kind == Kind::kPhysical || net.kind == Kind::kVirtualDevice ||
         net.kind == Kind::kBond || net.kind == Kind::kVlan ||
         net.kind == Kind::kIpoib;
}

constexpr int kPriorities = 8;

// A side of RoCE's congestion control, as its folder of sysfs names it.
struct EcnSide {
  const char* words;
  const char* folder;
  std::map<int, bool> NetInterface::*enabled;
};
constexpr EcnSide kEcnSides[] = {
    {"notification point", "roce_np", &NetInterface::ecn_np},
    {"reaction point", "roce_rp", &NetInterface::ecn_rp}};

// The sides that are off for `priority`.
std::vector<EcnSide> SidesOff(const NetInterface& net, int priority) {
  std::vector<EcnSide> off;
  for (const EcnSide& side : kEcnSides) {
    const std::map<int, bool>& enabled = net.*side.enabled;
    const auto found = enabled.find(priority);
    if (found != enabled.end() && !found->second) off.push_back(side);
  }
  return off;
}

void AddEcnOff(const NetInterface& net, int priority,
               const std::vector<EcnSide>& off, Report& report) {
  std::vector<std::string> sides;
  std::vector<std::string> files;
  std::vector<std::string> commands;
  for (const EcnSide& side : off) {
    sides.push_back(side.words);
    files.push_back(absl::StrCat("/sys/class/net/", net.name, "/ecn/",
                                 side.folder, "/enable/", priority));
    commands.push_back("echo 1 > " + Word(files.back()));
  }
  std::vector<int> pfc(kPriorities);
  if (priority >= 0 && priority < kPriorities) {
    pfc[static_cast<size_t>(priority)] = 1;
  }
  report.Add(Level::kWarn,
             absl::StrCat("ECN is off on ", net.name, " for priority ",
                          priority, " (", absl::StrJoin(sides, ", "),
                          "), which our traffic class uses"),
             absl::StrJoin(files, ", "),
             absl::StrCat("mlnx_qos -i ", Word(net.name),
                          " --trust dscp --pfc ", absl::StrJoin(pfc, ","), "; ",
                          absl::StrJoin(commands, "; ")));
}

// Whether a bridge has an interface between hosts as a member.
bool IsOverCard(const Machine& machine, const NetInterface& bridge) {
  return std::any_of(bridge.lower.begin(), bridge.lower.end(),
                     [&](const std::string& name) {
                       const NetInterface* net = FindInterface(machine, name);
                       return net != nullptr && IsCandidate(*net);
                     });
}

// Bridges of this machine's own containers that a variable of the user
// names, in NCCL's form: "docker" is all that begin so, "=docker0" one.
void AddChosenBridges(const Machine& machine, const std::string& variable,
                      Report& report) {
  const auto found = machine.environment.find(variable);
  if (found == machine.environment.end()) return;
  for (const absl::string_view item :
       absl::StrSplit(found->second, ',', absl::SkipEmpty())) {
    for (const NetInterface& net : machine.interfaces) {
      if (net.kind != Kind::kBridge || IsOverCard(machine, net)) continue;
      const bool is_start =
          variable.starts_with("NCCL") && absl::StartsWith(net.name, item);
      if (!is_start && absl::StripPrefix(item, "=") != net.name) continue;
      report.Add(Level::kWarn,
                 absl::StrCat(variable, " chooses ", net.name,
                              ", a bridge of this host's containers: others "
                              "do not reach it"),
                 absl::StrCat(variable, "=", found->second),
                 absl::StrCat("unset ", variable,
                              "; or name the interface between hosts there"));
    }
  }
}

}  // namespace

void CheckSpeedUnknown(const Machine& machine, const DoctorOptions&,
                       Report& report) {
  for (const NetInterface& net : machine.interfaces) {
    if (!IsCandidate(net) || !net.up.value_or(true)) continue;
    if (net.kind == Kind::kIpoib || net.gbps.known()) continue;
    report.Add(Level::kInfo,
               absl::StrCat("the speed of ", net.name,
                            " is unknown; it is measured instead"),
               Why(net.gbps.why),
               "to state it, set TELEGRAD_LINK_GBPS in gigabits/s");
  }
  if (report.empty()) report.Ok("every interface that is up tells its speed");
}

void CheckVirtualInterface(const Machine& machine, const DoctorOptions&,
                           Report& report) {
  for (const char* variable :
       {"UCX_NET_DEVICES", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"}) {
    AddChosenBridges(machine, variable, report);
  }
  if (!report.empty()) return;
  std::vector<std::string> candidates;
  std::vector<std::string> others;
  std::vector<std::string> choices;
  for (const NetInterface& net : machine.interfaces) {
    if (!net.up.value_or(true)) continue;
    (IsCandidate(net) ? candidates : others).push_back(net.name);
    if (net.kind != Kind::kLoopback) choices.push_back(net.name);
  }
  if (!candidates.empty()) {
    return report.Ok(absl::StrCat("interfaces between hosts: ",
                                  absl::StrJoin(candidates, ", ")));
  }
  if (others.empty()) {
    return report.Add(Level::kUnknown,
                      "the source shows no network interface that is up", "",
                      "ip -br link");
  }
  report.Add(Level::kWarn,
             absl::StrCat("only virtual interfaces are up: ",
                          absl::StrJoin(others, ", ")),
             "no interface has a device behind it",
             absl::StrCat("in a container: --net=host",
                          choices.empty()
                              ? ""
                              : "; else name the one that reaches the other "
                                "hosts: --bind ADDRESS, export "
                                "UCX_NET_DEVICES=",
                          absl::StrJoin(choices, " or ")));
}

void CheckFlowControl(const Machine& machine, const DoctorOptions& options,
                      Report& report) {
  bool has_roce = false;
  std::set<std::string> commands;
  for (const Nic& nic : machine.nics) {
    for (const Port& port : nic.ports) {
      if (!IsRoce(port)) continue;
      has_roce = true;
      if (port.net_interface.empty()) continue;
      commands.insert("mlnx_qos -i " + Word(port.net_interface));
    }
  }
  bool is_shown = false;
  for (const NetInterface& net : machine.interfaces) {
    is_shown |= !net.ecn_np.empty() || !net.ecn_rp.empty();
    const std::vector<EcnSide> off = SidesOff(net, options.priority);
    if (!off.empty()) AddEcnOff(net, options.priority, off, report);
  }
  if (!report.empty()) return;
  if (!has_roce || is_shown) {
    return report.Ok(
        is_shown ? absl::StrCat("ECN is on for priority ", options.priority)
                 : "there is no RoCE port");
  }
  report.Add(
      Level::kUnknown,
      "whether the fabric has PFC and ECN cannot be seen from here",
      "no /sys/class/net/*/ecn",
      absl::StrCat(absl::StrJoin(commands, "; "), commands.empty() ? "" : "; ",
                   "on the switch: show priority-flow-control"));
}

void CheckBond(const Machine& machine, const DoctorOptions&, Report& report) {
  for (const Nic& nic : machine.nics) {
    for (const Port& port : nic.ports) {
      if (!IsRoce(port)) continue;
      const NetInterface* net = FindInterface(machine, port.net_interface);
      if (net == nullptr || net->kind != Kind::kBond) continue;
      report.Add(Level::kInfo,
                 absl::StrCat(PortName(nic, port), " is a bond of ",
                              absl::StrJoin(net->lower, ", "),
                              "; one connection fills one link only"),
                 absl::StrCat(net->name, " has bonding/"),
                 "at least two connections per peer are used: "
                 "--connections 2, or with UCX UCX_IB_NUM_PATHS=2");
    }
  }
  if (report.empty()) report.Ok("no RoCE port is a bond");
}

}  // namespace telegrad::doctor
