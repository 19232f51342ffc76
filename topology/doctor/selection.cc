#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "topology/doctor/check.h"
#include "topology/path.h"

// Which ports hints leave out: T04's of other fabrics, T09's slow ones.
namespace telegrad::doctor {
namespace {

constexpr char kVariable[] = "TELEGRAD_NICS";

// "InfiniBand" or "Ethernet"; EFA, iWARP and Omni-Path are groups of their own.
std::string Group(const Port& port) {
  if (IsRoce(port)) return "Ethernet (RoCE)";
  return Name(port.fabric);
}

template <typename Function>
void ForEachActivePort(const Machine& machine, Function function) {
  for (const Nic& nic : machine.nics) {
    if (!nic.is_rdma) continue;
    for (const Port& port : nic.ports) {
      if (IsActive(port)) function(nic, port);
    }
  }
}

// What is in force; empty: nothing.
std::string PresentNics(const Machine& machine) {
  const auto found = machine.environment.find(kVariable);
  return found == machine.environment.end() ? "" : found->second;
}

std::set<const Port*> LeftOut(const Machine& machine) {
  const BestRates best = BestRatesOf(machine);
  const std::string kept = KeptGroup(GroupsOf(machine));
  std::set<const Port*> ports;
  ForEachActivePort(machine, [&](const Nic&, const Port& port) {
    if (Group(port) != kept || IsSlow(port, best)) ports.insert(&port);
  });
  return ports;
}

}  // namespace

std::map<std::string, FabricGroup> GroupsOf(const Machine& machine) {
  const BestRates best = BestRatesOf(machine);
  std::map<std::string, FabricGroup> groups;
  ForEachActivePort(machine, [&](const Nic& nic, const Port& port) {
    FabricGroup& group = groups[Group(port)];
    group.fabric = std::min(group.fabric, port.fabric);
    group.nics.push_back(nic.name);
    group.has_slow |= IsSlow(port, best);
  });
  return groups;
}

std::string KeptGroup(const std::map<std::string, FabricGroup>& groups) {
  const auto rank = [](const FabricGroup& group) {
    return std::make_pair(-static_cast<int>(group.nics.size()), group.fabric);
  };
  const auto kept = std::min_element(groups.begin(), groups.end(),
                                     [&](const auto& a, const auto& b) {
                                       return rank(a.second) < rank(b.second);
                                     });
  return kept == groups.end() ? "" : kept->first;
}

BestRates BestRatesOf(const Machine& machine) {
  BestRates best;
  ForEachActivePort(machine, [&](const Nic&, const Port& port) {
    double& rate = best[port.fabric];
    rate = std::max(rate, port.gbps.value_or(0));
  });
  return best;
}

bool IsSlow(const Port& port, const BestRates& best) {
  return port.gbps.known() && *port.gbps.value < best.at(port.fabric);
}

std::string SelectedNics(const Machine& machine) {
  const std::set<const Port*> left_out = LeftOut(machine);
  const std::string present = PresentNics(machine);
  // Names that the user gave by their start, or to be kept, cannot stand beside
  // names to leave out: what is still here and stays is named instead, with its
  // port, for others of its device may be out.
  const bool adds = present.empty() || absl::StartsWith(present, "^=");
  std::vector<std::string> names;
  for (const Nic& nic : machine.nics) {
    for (const Port& port : nic.ports) {
      if ((left_out.count(&port) > 0) != adds) continue;
      names.push_back(adds ? OverrideName(nic, port)
                           : absl::StrCat(nic.name, ":", port.number));
    }
  }
  const std::string before = !adds             ? "="
                             : present.empty() ? "^="
                                               : present + ",";
  return absl::StrCat("export ", kVariable, "=",
                      Word(before + absl::StrJoin(names, ",")));
}

}  // namespace telegrad::doctor
