#include "kvstore/tuning/rdma_ports.h"

#include <algorithm>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"

namespace telegrad {
namespace {

struct Candidate {
  const Nic* nic = nullptr;
  const Port* port = nullptr;
};

bool IsActive(const Port& port) { return port.state.value_or(0) == 4; }

bool IsForUcx(const Port& port) {
  return port.fabric == Fabric::kInfiniBand ||
         (port.fabric == Fabric::kRoceV2 && port.chosen_gid.known());
}

std::vector<Candidate> Find(const Machine& machine,
                            bool (*is_right)(const Port&)) {
  std::vector<Candidate> found;
  for (const Nic& nic : machine.nics) {
    if (!nic.is_rdma || nic.has_device_node == Tri::kNo) continue;
    for (const Port& port : nic.ports) {
      if (IsActive(port) && is_right(port)) found.push_back({&nic, &port});
    }
  }
  return found;
}

bool Has(const Candidate& each, const std::string& interface) {
  return each.port->net_interface == interface ||
         (each.nic->ports.size() == 1 &&
          absl::c_linear_search(each.nic->net_interfaces, interface)) ||
         absl::c_any_of(each.port->gids, [&](const Gid& gid) {
           return gid.net_interface == interface;
         });
}

// Others than the interface's are of use where they need no address of it.
std::vector<Candidate> NearInterface(const std::vector<Candidate>& all,
                                     const std::string& interface) {
  std::vector<Candidate> near;
  for (const Candidate& each : all) {
    if (Has(each, interface)) near.push_back(each);
  }
  if (!near.empty()) return near;
  double best = 0;
  for (const Candidate& each : all) {
    if (each.port->fabric != Fabric::kInfiniBand) continue;
    best = std::max(best, each.port->gbps.value_or(0));
    near.push_back(each);
  }
  std::erase_if(near, [best](const Candidate& each) {
    return each.port->gbps.value_or(0) < best / 2;
  });
  return near;
}

// EFA is nothing that UCX can open.
bool MayBeOfi(const TransportOptions& options) {
  return options.tls != "shm" && options.name != "ucx" &&
         options.name != "IB" && options.name != "RoCEv2";
}

}  // namespace

void TakeMachine(const Machine& machine, const std::string& interface,
                 TransportOptions& options) {
  std::vector<Candidate> ports = Find(machine, &IsForUcx);
  const auto wish = machine.environment.find("TELEGRAD_NICS");
  if (wish == machine.environment.end() || wish->second.empty()) {
    ports = NearInterface(ports, interface);
  }
  if (ports.empty() && MayBeOfi(options)) {
    ports = Find(machine,
                 [](const Port& port) { return port.fabric == Fabric::kEfa; });
  }
  options.rdma_ports.emplace();
  options.gid_rows.clear();
  for (const Candidate& each : ports) {
    const std::string name =
        absl::StrCat(each.nic->name, ":", each.port->number);
    options.rdma_ports->push_back(name);
    if (IsRoce(*each.port)) {
      options.gid_rows[name] = *each.port->chosen_gid.value;
    }
  }
}

}  // namespace telegrad
