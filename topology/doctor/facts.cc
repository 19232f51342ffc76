#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "topology/doctor/check.h"

namespace telegrad::doctor {

bool IsActive(const Port& port) { return port.state.value == kActiveState; }

bool HasRdma(const Machine& machine) {
  for (const Nic& nic : machine.nics) {
    if (nic.is_rdma) return true;
  }
  return false;
}

bool HasUnknownPort(const Machine& machine) {
  for (const Nic& nic : machine.nics) {
    for (const Port& port : nic.ports) {
      if (nic.is_rdma && !port.state.known()) return true;
    }
  }
  return false;
}

bool ShowsProcesses(const Machine& machine) {
  return machine.source == "live" || machine.capabilities.memlock_bytes.known();
}

bool HasGpuAndRdma(const Machine& machine) {
  return !machine.gpus.empty() && HasRdma(machine);
}

std::string PortName(const Nic& nic, const Port& port) {
  return absl::StrCat(nic.name, "/", port.number);
}

std::string OverrideName(const Nic& nic, const Port& port) {
  return nic.ports.size() < 2 ? nic.name
                              : absl::StrCat(nic.name, ":", port.number);
}

std::string Gbps(double gbps) { return absl::StrFormat("%.4g Gb/s", gbps); }

const NetInterface* FindInterface(const Machine& machine,
                                  absl::string_view name) {
  for (const NetInterface& each : machine.interfaces) {
    if (each.name == name) return &each;
  }
  return nullptr;
}

std::string Why(const std::vector<Evidence>& why) {
  std::string text;
  for (const Evidence& each : why) {
    absl::StrAppend(&text, text.empty() ? "" : "; ", each.what);
    if (!each.source.empty()) {
      absl::StrAppend(&text, each.what.empty() ? "" : ": ", each.source);
    }
    if (each.error != 0) {
      absl::StrAppend(&text, " (", std::strerror(each.error), ")");
    } else if (!each.raw.empty()) {
      absl::StrAppend(&text, " = \"", each.raw, "\"");
    }
  }
  return text;
}

std::string Why(const Machine& machine, const std::string& key) {
  const auto found = machine.capabilities.why.find(key);
  return found == machine.capabilities.why.end() ? "" : Why(found->second);
}

}  // namespace telegrad::doctor
