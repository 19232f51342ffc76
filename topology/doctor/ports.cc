#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "topology/doctor/check.h"

namespace telegrad::doctor {
namespace {

constexpr int kUsualLanes = 4;

// States of a port by the InfiniBand architecture, and what keeps it there.
std::string StateHint(const Port& port) {
  switch (*port.state.value) {
    case 2:
      return "state 2 (INIT): no subnet manager has configured it; start "
             "opensm or look at the switch";
    case 3:
      return "state 3 (ARMED): the subnet manager is at work; look again";
    default:
      break;
  }
  const bool has_command =
      port.link_layer != LinkLayer::kInfiniBand && !port.net_interface.empty();
  return absl::StrCat("check the cable and the transceiver",
                      has_command ? "; ip link set up dev " : "",
                      has_command ? Word(port.net_interface) : "");
}

void CheckPortRate(const Nic& nic, const Port& port, const BestRates& best,
                   const std::string& selection, Report& report) {
  if (!port.gbps.known()) return;
  const double rate = *port.gbps.value;
  if (IsSlow(port, best)) {
    report.Add(
        Level::kWarn,
        absl::StrCat(PortName(nic, port), " runs at ", Gbps(rate),
                     ", its best sibling at ", Gbps(best.at(port.fabric))),
        Why(port.gbps.why),
        absl::StrCat("reseat the cable, look at the switch port's speed; or ",
                     selection));
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

void AddUnknownPorts(const Machine& machine, Report& report) {
  report.Add(Level::kUnknown,
             "the source does not show which RDMA ports are active",
             machine.source, "run it on the machine itself");
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
             "ulimit -l unlimited; in a container as root: docker run "
             "--cap-add IPC_LOCK, of Kubernetes securityContext: "
             "{capabilities: {add: [IPC_LOCK]}}; without root --ulimit "
             "memlock=-1");
}

void CheckPortDown(const Machine& machine, const DoctorOptions&,
                   Report& report) {
  int active = 0;
  for (const Nic& nic : machine.nics) {
    if (!nic.is_rdma) continue;
    for (const Port& port : nic.ports) {
      active += IsActive(port);
      if (IsActive(port) || !port.state.known()) continue;
      report.Add(Level::kWarn,
                 absl::StrCat(PortName(nic, port), " is not active (state ",
                              *port.state.value, ")"),
                 Why(port.state.why), StateHint(port));
    }
  }
  if (!report.empty()) return;
  if (HasUnknownPort(machine)) return AddUnknownPorts(machine, report);
  report.Ok(absl::StrCat(active, " RDMA ports are active"));
}

void CheckMixedLinkLayer(const Machine& machine, const DoctorOptions&,
                         Report& report) {
  const std::map<std::string, FabricGroup> groups = GroupsOf(machine);
  if (groups.size() < 2) {
    if (HasUnknownPort(machine)) return AddUnknownPorts(machine, report);
    return report.Ok(groups.empty() ? "there is no active RDMA port"
                                    : absl::StrCat("all active RDMA ports are ",
                                                   groups.begin()->first));
  }
  const std::string kept = KeptGroup(groups);
  std::vector<std::string> parts;
  for (const auto& [name, group] : groups) {
    parts.push_back(absl::StrCat(name, ": ", absl::StrJoin(group.nics, ", ")));
  }
  report.Add(
      Level::kWarn,
      absl::StrCat("active RDMA ports speak different fabrics, one group "
                   "is used: ",
                   absl::StrJoin(parts, "; ")),
      "ports' link layers",
      absl::StrCat("to keep ", kept, " alone",
                   groups.at(kept).has_slow ? " without its slow ports" : "",
                   ": ", SelectedNics(machine)));
}

void CheckRate(const Machine& machine, const DoctorOptions&, Report& report) {
  const BestRates best = BestRatesOf(machine);
  const bool is_mixed = GroupsOf(machine).size() > 1;
  const std::string selection = absl::StrCat(
      "leave out all slow ports", is_mixed ? " and T04's other fabrics" : "",
      ": ", SelectedNics(machine));
  for (const Nic& nic : machine.nics) {
    if (!nic.is_rdma) continue;
    for (const Port& port : nic.ports) {
      if (IsActive(port)) CheckPortRate(nic, port, best, selection, report);
    }
    CheckSlot(nic, report);
  }
  if (report.empty()) report.Ok("no RDMA link is slower than its siblings");
}

}  // namespace telegrad::doctor
