#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "topology/machine_json.h"
#include "topology/path.h"
#include "topology/sha256.h"

namespace telegrad {
namespace {

// Sorted, so that the order of devices does not matter.
std::string Sorted(std::vector<std::string> words) {
  std::sort(words.begin(), words.end());
  return absl::StrJoin(words, ",");
}

std::string Rate(const Known<double>& gbps) {
  return gbps.known() ? absl::StrFormat("%.9g", *gbps.value) : "?";
}

std::string Describe(const Nic& nic) {
  std::vector<std::string> ports;
  for (const Port& port : nic.ports) {
    ports.push_back(absl::StrCat(Name(port.fabric), "@", Rate(port.gbps), "x",
                                 port.lanes.value_or(0), "s",
                                 port.state.value_or(0)));
  }
  return absl::StrCat("nic(", nic.is_rdma ? "rdma " : "", Sorted(ports), ")");
}

// A GPU with its links and its paths to everything, without names.
std::string Describe(const Machine& machine, size_t g) {
  const Gpu& gpu = machine.gpus[g];
  std::vector<std::string> links;
  for (const GpuLink& link : machine.links) {
    const auto self = static_cast<int>(g);
    if (link.a != self && link.b != self) continue;
    links.push_back(absl::StrCat(link.b == GpuLink::kToSwitch ? "switch"
                                 : link.b == GpuLink::kToCpu  ? "cpu"
                                                              : "gpu",
                                 "x", link.lanes, "@",
                                 Rate(link.gbytes_per_s)));
  }
  std::vector<std::string> nics;
  if (g < machine.gpu_nic.size()) {
    for (size_t n = 0; n < machine.gpu_nic[g].size(); ++n) {
      nics.push_back(absl::StrCat(Name(machine.gpu_nic[g][n].path), " ",
                                  Describe(machine.nics[n])));
    }
  }
  std::vector<std::string> gpus;
  if (g < machine.gpu_gpu.size()) {
    for (const PathInfo& path : machine.gpu_gpu[g]) {
      gpus.push_back(absl::StrCat(Name(path.path), "/", Name(path.pcie)));
    }
  }
  return absl::StrCat("gpu(", absl::CEscape(gpu.model), " ",
                      gpu.compute_capability.value_or(0), " links ",
                      Sorted(links), " nics ", Sorted(nics), " gpus ",
                      Sorted(gpus), ")");
}

}  // namespace

std::string TopologyDigest(const Machine& machine) {
  std::vector<std::string> devices;
  for (const Nic& nic : machine.nics) devices.push_back(Describe(nic));
  for (size_t g = 0; g < machine.gpus.size(); ++g) {
    devices.push_back(Describe(machine, g));
  }
  const std::string text =
      absl::StrCat("telegrad topology 1 ", absl::CEscape(machine.arch),
                   " numa ", machine.numa_nodes, " ", Sorted(devices));
  return Sha256Hex(text).substr(0, 32);
}

}  // namespace telegrad
