#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <map>
#include <set>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "topology/doctor/check.h"
#include "topology/path.h"

namespace telegrad::doctor {
namespace {

// A value of each machine, by value: "3" -> {"node0", "node1"}.
using ByValue = std::map<std::string, std::vector<std::string>>;

std::string HostName(const Machine& machine) {
  return machine.host.empty() ? machine.source : machine.host;
}

ByValue Collect(std::span<const Machine> machines,
                const std::function<std::string(const Machine&)>& value) {
  ByValue hosts;
  for (const Machine& machine : machines) {
    const std::string text = value(machine);
    if (!text.empty()) hosts[text].push_back(HostName(machine));
  }
  return hosts;
}

// "8 GPUs: node0, node1; 7 GPUs: node2".
std::string Describe(const ByValue& hosts) {
  return absl::StrJoin(hosts, "; ", [](std::string* out, const auto& each) {
    absl::StrAppend(out, each.first, ": ", absl::StrJoin(each.second, ", "));
  });
}

// Calls `visit` for each active port of an RDMA device.
void ForEachActivePort(
    const Machine& machine,
    const std::function<void(const Nic&, const Port&)>& visit) {
  for (const Nic& nic : machine.nics) {
    if (!nic.is_rdma) continue;
    for (const Port& port : nic.ports) {
      if (IsActive(port)) visit(nic, port);
    }
  }
}

// Whether a host has an RDMA port that is not shown, or an active one that
// `lacks` what is compared: then hosts are not known to be alike.
bool SomeDoNotShow(std::span<const Machine> machines,
                   const std::function<bool(const Port&)>& lacks) {
  bool found = false;
  for (const Machine& machine : machines) {
    found |= HasUnknownPort(machine);
    ForEachActivePort(
        machine, [&](const Nic&, const Port& port) { found |= lacks(port); });
  }
  return found;
}

bool LacksGid(const Port& port) {
  return IsRoce(port) && !port.chosen_gid.known();
}

// `alike` where nothing differs.
void AddAlike(bool is_shown, const char* what, const std::string& alike,
              Report& report) {
  if (is_shown) return report.Ok(alike);
  report.Add(Level::kUnknown,
             absl::StrCat("not all hosts show ", what, " of their RDMA ports"),
             "", "telegrad-topo show --dump FILE on each");
}

// "ip link set dev eth0 mtu 9000: node1": of RoCE ports below `greatest`.
std::string MtuHint(std::span<const Machine> machines, int greatest) {
  const ByValue commands = Collect(machines, [&](const Machine& machine) {
    std::set<std::string> lines;
    ForEachActivePort(machine, [&](const Nic&, const Port& port) {
      const bool is_less = port.active_mtu.value_or(greatest) < greatest;
      if (!is_less || !IsRoce(port) || port.net_interface.empty()) return;
      lines.insert(absl::StrCat("ip link set dev ", Word(port.net_interface),
                                " mtu 9000"));
    });
    return absl::StrJoin(lines, " && ");
  });
  if (commands.empty()) {
    return "give all ports the same MTU: that of the subnet manager's "
           "partition for InfiniBand";
  }
  return absl::StrCat(absl::StrJoin(commands, "; ",
                                    [](std::string* out, const auto& each) {
                                      absl::StrAppend(
                                          out, "on ",
                                          absl::StrJoin(each.second, ", "),
                                          ": ", each.first);
                                    }),
                      "; and the switch");
}

// What must be equal between nodes of one class, each as a line of text.
struct Field {
  const char* name;
  std::string (*value)(const Machine&);
};

std::string Gpus(const Machine& machine) {
  std::map<std::string, int> models;
  for (const Gpu& gpu : machine.gpus) ++models[gpu.model];
  return absl::StrCat(machine.gpus.size(), " (",
                      absl::StrJoin(models, ", ",
                                    [](std::string* out, const auto& each) {
                                      absl::StrAppend(out, each.second, " x ",
                                                      each.first);
                                    }),
                      ")");
}

std::string Nics(const Machine& machine) {
  if (HasUnknownPort(machine)) return "";
  std::map<std::string, int> kinds;
  ForEachActivePort(machine, [&](const Nic&, const Port& port) {
    ++kinds[absl::StrCat(Name(port.fabric), " ", Gbps(port.gbps.value_or(0)))];
  });
  return kinds.empty() ? "none"
                       : absl::StrJoin(kinds, ", ", absl::PairFormatter(" x "));
}

// How many GPU-NIC pairs each class of path has.
std::string Paths(const Machine& machine) {
  std::map<PathClass, int> classes;
  for (const auto& row : machine.gpu_nic) {
    for (size_t n = 0; n < row.size() && n < machine.nics.size(); ++n) {
      if (machine.nics[n].is_rdma) ++classes[row[n].path];
    }
  }
  return absl::StrJoin(classes, ", ", [](std::string* out, const auto& each) {
    absl::StrAppend(out, each.second, " x ", Name(each.first));
  });
}

std::string NumaNodes(const Machine& machine) {
  return machine.numa_nodes == 0 ? "" : absl::StrCat(machine.numa_nodes);
}

std::string UcxVersion(const Machine& machine) {
  return machine.capabilities.ucx_version;
}

constexpr Field kFields[] = {{"GPUs", &Gpus},
                             {"active RDMA ports", &Nics},
                             {"GPU-NIC paths", &Paths},
                             {"NUMA nodes", &NumaNodes},
                             {"UCX", &UcxVersion}};

// "192.0.2" of the IPv4 address of the chosen GID of each active RoCE port.
std::vector<std::string> RailSubnets(const Machine& machine) {
  std::vector<std::string> subnets;
  ForEachActivePort(machine, [&](const Nic&, const Port& port) {
    if (!IsRoce(port) || !port.chosen_gid.known()) return;
    for (const Gid& gid : port.gids) {
      if (gid.index != *port.chosen_gid.value) continue;
      subnets.push_back(gid.scope == GidScope::kIpv4
                            ? absl::StrFormat("%d.%d.%d.0/24", gid.raw[12],
                                              gid.raw[13], gid.raw[14])
                            : "");
    }
  });
  return subnets;
}

}  // namespace

void CompareGids(std::span<const Machine> machines, Report& report) {
  const ByValue hosts = Collect(machines, [](const Machine& machine) {
    std::set<int> indexes;
    ForEachActivePort(machine, [&](const Nic&, const Port& port) {
      if (IsRoce(port) && port.chosen_gid.known()) {
        indexes.insert(*port.chosen_gid.value);
      }
    });
    return absl::StrJoin(indexes, ",");
  });
  if (hosts.size() < 2) {
    return AddAlike(!SomeDoNotShow(machines, LacksGid), "the GID index",
                    "all hosts use the same GID indexes", report);
  }
  report.Add(Level::kInfo,
             "hosts use different GID indexes, each its own: that is right",
             absl::StrCat("index ", Describe(hosts)),
             "do not export NCCL_IB_GID_INDEX or UCX_IB_GID_INDEX for all "
             "hosts at once");
}

void CompareMtus(std::span<const Machine> machines, Report& report) {
  const ByValue hosts = Collect(machines, [](const Machine& machine) {
    std::set<int> mtus;
    ForEachActivePort(machine, [&](const Nic&, const Port& port) {
      if (port.active_mtu.known()) mtus.insert(*port.active_mtu.value);
    });
    return absl::StrJoin(mtus, ",");
  });
  if (hosts.size() < 2) {
    const auto lacks = [](const Port& port) {
      return !port.active_mtu.known();
    };
    return AddAlike(!SomeDoNotShow(machines, lacks), "the MTU",
                    "all RDMA ports have the same MTU", report);
  }
  int least = std::numeric_limits<int>::max();
  int greatest = 0;
  for (const Machine& machine : machines) {
    ForEachActivePort(machine, [&](const Nic&, const Port& port) {
      least = std::min(least, port.active_mtu.value_or(least));
      greatest = std::max(greatest, port.active_mtu.value_or(0));
    });
  }
  report.Add(Level::kWarn,
             absl::StrCat("the RDMA ports' MTU differs between hosts; ", least,
                          " is used on all"),
             absl::StrCat("MTU ", Describe(hosts)),
             MtuHint(machines, greatest));
}

void CompareGdr(std::span<const Machine> machines, Report& report) {
  const ByValue hosts = Collect(machines, [](const Machine& machine) {
    return HasGpuAndRdma(machine) ? std::string(Name(machine.capabilities.gdr))
                                  : std::string();
  });
  const bool has_no = hosts.contains("no");
  if (hosts.contains("unknown") && !(hosts.contains("yes") && has_no)) {
    return report.Add(Level::kUnknown,
                      "not all hosts show whether they have GPUDirect RDMA",
                      Describe(hosts), "telegrad-topo doctor --probe on each");
  }
  if (!hosts.contains("yes") || !has_no) {
    return report.Ok("all hosts are alike in GPUDirect RDMA");
  }
  const std::vector<std::string>& lacking = hosts.at("no");
  report.Add(Level::kFail,
             absl::StrCat(absl::StrJoin(lacking, ", "),
                          lacking.size() == 1 ? " lacks" : " lack",
                          " GPUDirect RDMA and would set the pace of all"),
             absl::StrCat("GPUDirect RDMA ", Describe(hosts)),
             "on these hosts: modprobe nvidia-peermem; then telegrad-topo "
             "doctor --probe");
}

void CompareTopologies(std::span<const Machine> machines, Report& report) {
  for (const Field& field : kFields) {
    const ByValue hosts = Collect(machines, field.value);
    if (hosts.size() < 2) continue;
    report.Add(Level::kFail, absl::StrCat("hosts differ in ", field.name),
               Describe(hosts),
               "compare them: telegrad-topo show --dump FILE on each, then "
               "telegrad-topo doctor --diff FILE...");
  }
  if (!report.empty()) return;
  AddAlike(absl::c_none_of(machines, HasUnknownPort), "the state",
           absl::StrCat(machines.size(), " hosts have equal hardware"), report);
}

void CompareRails(std::span<const Machine> machines, Report& report) {
  std::map<size_t, ByValue> rails;
  for (const Machine& machine : machines) {
    const std::vector<std::string> subnets = RailSubnets(machine);
    for (size_t rail = 0; rail < subnets.size(); ++rail) {
      if (!subnets[rail].empty()) {
        rails[rail][subnets[rail]].push_back(HostName(machine));
      }
    }
  }
  for (const auto& [rail, hosts] : rails) {
    if (hosts.size() < 2) continue;
    report.Add(Level::kWarn,
               absl::StrCat("rail ", rail,
                            " is in different subnets, so its "
                            "ports reach each other only through a router"),
               absl::StrCat(Describe(hosts), "; prefixes of 24 bits assumed"),
               "cable or address the rails alike, or use hierarchical "
               "aggregation, which stays on a rail");
  }
  if (!report.empty()) return;
  AddAlike(!SomeDoNotShow(machines, LacksGid), "the GIDs",
           "rails of the same number share a subnet", report);
}

}  // namespace telegrad::doctor
