#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "topology/doctor/check.h"
#include "topology/path.h"

namespace telegrad::doctor {
namespace {

constexpr int kUsualLanes = 4;

// States of a port by the InfiniBand architecture, and what keeps it there.
const char* StateHint(int state) {
  switch (state) {
    case 2:
      return "state 2 (INIT): no subnet manager has configured it; start "
             "opensm or look at the switch";
    case 3:
      return "state 3 (ARMED): the subnet manager is at work; look again";
    default:
      return "check the cable and the transceiver; for Ethernet: ip link set "
             "up dev NAME";
  }
}

// "InfiniBand" or "Ethernet"; EFA, iWARP and Omni-Path are groups of their own.
std::string Group(const Port& port) {
  if (IsRoce(port)) return "Ethernet (RoCE)";
  return Name(port.fabric);
}

// Active RDMA ports that can talk to each other.
struct FabricGroup {
  Fabric fabric = Fabric::kUnknown;
  std::vector<std::string> nics = {};       // one entry for each port
  std::vector<std::string> overrides = {};  // names for TELEGRAD_NICS
};

std::map<std::string, FabricGroup> GroupsOf(const Machine& machine) {
  std::map<std::string, FabricGroup> groups;
  for (const Nic& nic : machine.nics) {
    if (!nic.is_rdma) continue;
    for (const Port& port : nic.ports) {
      if (!IsActive(port)) continue;
      FabricGroup& group = groups[Group(port)];
      group.fabric = std::min(group.fabric, port.fabric);
      group.nics.push_back(nic.name);
      group.overrides.push_back(OverrideName(nic, port));
    }
  }
  return groups;
}

using BestRates = std::map<Fabric, double>;

bool IsSlow(const Port& port, const BestRates& best) {
  return port.gbps.known() && *port.gbps.value < best.at(port.fabric);
}

// All for one value: a variable that is set twice keeps the last.
std::vector<std::string> SlowPorts(const Machine& machine,
                                   const BestRates& best) {
  std::vector<std::string> slow;
  for (const Nic& nic : machine.nics) {
    if (!nic.is_rdma) continue;
    for (const Port& port : nic.ports) {
      if (!IsActive(port) || !IsSlow(port, best)) continue;
      slow.push_back(OverrideName(nic, port));
    }
  }
  return slow;
}

void CheckPortRate(const Nic& nic, const Port& port, const BestRates& best,
                   const std::vector<std::string>& slow, Report& report) {
  if (!port.gbps.known()) return;
  const double rate = *port.gbps.value;
  if (IsSlow(port, best)) {
    report.Add(
        Level::kWarn,
        absl::StrCat(PortName(nic, port), " runs at ", Gbps(rate),
                     ", its best sibling at ", Gbps(best.at(port.fabric))),
        Why(port.gbps.why),
        absl::StrCat(
            "reseat the cable, look at the switch port's "
            "speed; or leave ",
            slow.size() == 1 ? "it" : "all such ports",
            " out: export TELEGRAD_NICS=^=", absl::StrJoin(slow, ",")));
  }
  const int lanes = port.lanes.value_or(kUsualLanes);
  if (lanes < kUsualLanes && rate < 100) {
    report.Add(Level::kWarn,
               absl::StrCat(PortName(nic, port), " has ", lanes,
                            " lanes of the usual ", kUsualLanes),
               Why(port.lanes.why), "a degraded link: reseat the cable");
  }
}

void CheckSlot(const Nic& nic, Report& report) {
  if (!nic.pcie_gbps.known() || !nic.pcie_now_gbps.known()) return;
  if (*nic.pcie_now_gbps.value >= *nic.pcie_gbps.value) return;
  report.Add(
      Level::kWarn,
      absl::StrCat(nic.name, "'s slot runs at ", Gbps(*nic.pcie_now_gbps.value),
                   ", it could at ", Gbps(*nic.pcie_gbps.value)),
      Why(nic.pcie_now_gbps.why),
      "reseat the card, look at the BIOS's link speed and bifurcation");
}

}  // namespace

void CheckDeviceNodes(const Machine& machine, const DoctorOptions&,
                      Report& report) {
  if (!HasRdma(machine)) return report.Ok("there is no RDMA device");
  std::vector<std::string> missing;
  bool unknown = false;
  for (const Nic& nic : machine.nics) {
    if (!nic.is_rdma) continue;
    if (nic.has_device_node == Tri::kNo) missing.push_back(nic.name);
    unknown |= nic.has_device_node == Tri::kUnknown;
  }
  if (!missing.empty()) {
    report.Add(Level::kFail,
               absl::StrCat("RDMA devices cannot be opened, TCP is used: ",
                            absl::StrJoin(missing, ", ")),
               "no /dev/infiniband/uverbsN for them",
               "run the container with --device=/dev/infiniband (Kubernetes: "
               "the RDMA device plugin); on the host: modprobe ib_uverbs");
  } else if (unknown) {
    report.Add(Level::kUnknown, "the source does not show /dev/infiniband",
               machine.source, "run it on the machine itself");
  } else {
    report.Ok("every RDMA device has its node in /dev/infiniband");
  }
}

void CheckMemlock(const Machine& machine, const DoctorOptions& options,
                  Report& report) {
  const Known<uint64_t>& limit = machine.capabilities.memlock_bytes;
  const uint64_t wanted = 2 * options.registered_bytes;
  if (!HasRdma(machine)) {
    return report.Ok("no RDMA device needs locked memory");
  }
  if (!limit.known()) {
    return report.Add(Level::kUnknown, "the limit of locked memory is unknown",
                      Why(limit.why), "ulimit -l");
  }
  if (*limit.value >= wanted) {
    return report.Ok(
        *limit.value == std::numeric_limits<uint64_t>::max()
            ? "locked memory is not limited"
            : absl::StrCat("up to ", *limit.value, " bytes may be locked"));
  }
  report.Add(Level::kFail,
             absl::StrCat("only ", *limit.value,
                          " bytes of memory may be locked, a job registers ",
                          options.registered_bytes, " and wants twice that"),
             Why(limit.why),
             "ulimit -l unlimited; docker run --ulimit memlock=-1; or give "
             "CAP_IPC_LOCK");
}

void CheckPortDown(const Machine& machine, const DoctorOptions&,
                   Report& report) {
  int active = 0;
  for (const Nic& nic : machine.nics) {
    if (!nic.is_rdma) continue;
    for (const Port& port : nic.ports) {
      if (IsActive(port)) {
        ++active;
        continue;
      }
      if (!port.state.known()) continue;
      report.Add(Level::kWarn,
                 absl::StrCat(PortName(nic, port), " is not active (state ",
                              *port.state.value, ")"),
                 Why(port.state.why), StateHint(*port.state.value));
    }
  }
  if (report.empty()) report.Ok(absl::StrCat(active, " RDMA ports are active"));
}

void CheckMixedLinkLayer(const Machine& machine, const DoctorOptions&,
                         Report& report) {
  const std::map<std::string, FabricGroup> groups = GroupsOf(machine);
  if (groups.size() < 2) {
    return report.Ok(groups.empty() ? "there is no active RDMA port"
                                    : absl::StrCat("all active RDMA ports are ",
                                                   groups.begin()->first));
  }
  const auto rank = [](const FabricGroup& group) {
    return std::make_pair(-static_cast<int>(group.nics.size()), group.fabric);
  };
  const auto kept = std::min_element(groups.begin(), groups.end(),
                                     [&](const auto& a, const auto& b) {
                                       return rank(a.second) < rank(b.second);
                                     });
  std::vector<std::string> parts;
  std::vector<std::string> left_out;
  for (const auto& [name, group] : groups) {
    parts.push_back(absl::StrCat(name, ": ", absl::StrJoin(group.nics, ", ")));
    if (name == kept->first) continue;
    left_out.insert(left_out.end(), group.overrides.begin(),
                    group.overrides.end());
  }
  report.Add(
      Level::kWarn,
      absl::StrCat("active RDMA ports speak different fabrics, one group "
                   "is used: ",
                   absl::StrJoin(parts, "; ")),
      "ports' link layers",
      absl::StrCat("to keep ", kept->first, " alone: export TELEGRAD_NICS=^=",
                   absl::StrJoin(left_out, ",")));
}

void CheckRate(const Machine& machine, const DoctorOptions&, Report& report) {
  BestRates best;
  for (const Nic& nic : machine.nics) {
    for (const Port& port : nic.ports) {
      if (!nic.is_rdma || !IsActive(port)) continue;
      double& rate = best[port.fabric];
      rate = std::max(rate, port.gbps.value_or(0));
    }
  }
  const std::vector<std::string> slow = SlowPorts(machine, best);
  for (const Nic& nic : machine.nics) {
    if (!nic.is_rdma) continue;
    for (const Port& port : nic.ports) {
      if (IsActive(port)) CheckPortRate(nic, port, best, slow, report);
    }
    CheckSlot(nic, report);
  }
  if (report.empty()) report.Ok("no RDMA link is slower than its siblings");
}

}  // namespace telegrad::doctor
