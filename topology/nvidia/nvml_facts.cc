#include "topology/nvidia/nvml_facts.h"

#include <algorithm>
#include <map>
#include <utility>

#include "topology/nvidia/nvml.h"
#include "topology/path.h"

namespace telegrad {
namespace {

using nvidia::Device;
using nvidia::Nvml;

constexpr unsigned kMaxLinks = 18;  // NVML_NVLINK_MAX_LINKS
constexpr int kToGpu = 0;
constexpr int kToSwitch = 2;

int IndexOf(const Machine& machine, const Bdf& bdf) {
  const auto gpu =
      std::find_if(machine.gpus.begin(), machine.gpus.end(),
                   [&](const Gpu& each) { return each.bdf == bdf; });
  return gpu == machine.gpus.end()
             ? -1
             : static_cast<int>(gpu - machine.gpus.begin());
}

// One GpuLink for all lanes that lead to the same place.
void AddLinks(const Nvml& nvml, Device device, int gpu, Machine& machine) {
  const int capability =
      machine.gpus[static_cast<size_t>(gpu)].compute_capability.value_or(0);
  std::map<std::pair<int, std::string>, GpuLink> links;
  for (unsigned i = 0; i < kMaxLinks; ++i) {
    if (!nvml.IsLinkActive(device, i)) continue;
    Bdf bdf;
    const int type = nvml.GetRemote(device, i, &bdf);
    int b = GpuLink::kToSwitch;
    if (type == kToGpu) {
      b = IndexOf(machine, bdf);
      if (b < 0 || b < gpu) continue;  // the other end counts it
    } else if (type != kToSwitch && type >= 0) {
      b = GpuLink::kToCpu;
    }
    // A guest does not see what is at the other end: a switch.
    std::string name = type < 0 ? "hidden" : ToString(bdf);
    if (b >= 0) name.clear();
    GpuLink& link = links[{b, name}];
    link.a = gpu;
    link.b = b;
    link.b_name = name;
    ++link.lanes;
    const double gbytes =
        nvidia::NvlinkGbytes(nvml.GetLinkVersion(device, i), capability);
    if (gbytes > 0) {
      link.gbytes_per_s.value = link.gbytes_per_s.value_or(0) + gbytes;
    }
  }
  for (auto& [key, link] : links) {
    link.gbytes_per_s.why = {{.what = "lanes by version of NVLink",
                              .source = "nvmlDeviceGetNvLinkVersion",
                              .confidence = Confidence::kInferred}};
    machine.links.push_back(std::move(link));
  }
}

void Describe(const Nvml& nvml, Device device, Gpu& gpu) {
  const std::string model = nvml.GetName(device);
  const std::string uuid = nvml.GetUuid(device);
  if (!model.empty()) gpu.model = model;
  if (!uuid.empty()) gpu.uuid = uuid;
  const int capability = nvml.GetComputeCapability(device);
  if (capability > 0) {
    gpu.compute_capability = {
        .value = capability,
        .why = {{.what = "compute capability",
                 .source = "nvmlDeviceGetCudaComputeCapability"}}};
  }
}

}  // namespace

double nvidia::NvlinkGbytes(int version, int capability) {
  constexpr int kHopper = 90;
  if (version == 1) return 20;                  // 1.0
  if (version >= 2 && version <= 6) return 25;  // 2.0, 2.2, 3.0, 3.1, 4.0
  if (version != 7) return 0;                   // 5.0
  return capability == kHopper ? 25 : 50;
}

void AddNvmlFacts(const TopologyOptions& /*options*/, Machine& machine) {
  std::string why_not;
  const std::unique_ptr<Nvml> nvml = Nvml::Open(&why_not);
  if (nvml == nullptr) {
    if (machine.gpus.empty()) return;
    machine.notes.push_back({.what = "NVLinks are unknown: " + why_not,
                             .source = "libnvidia-ml.so.1"});
    return;
  }
  for (unsigned i = 0; i < nvml->CountDevices(); ++i) {
    Device device = nullptr;
    Bdf bdf;
    if (!nvml->GetDevice(i, &device, &bdf)) continue;
    if (IndexOf(machine, bdf) < 0) {
      // sysfs is masked: where it hangs stays unknown.
      machine.gpus.push_back({.name = ToString(bdf), .bdf = bdf});
    }
  }
  std::sort(machine.gpus.begin(), machine.gpus.end(),
            [](const Gpu& a, const Gpu& b) { return a.bdf < b.bdf; });
  for (unsigned i = 0; i < nvml->CountDevices(); ++i) {
    Device device = nullptr;
    Bdf bdf;
    if (!nvml->GetDevice(i, &device, &bdf)) continue;
    const int index = IndexOf(machine, bdf);
    Gpu& gpu = machine.gpus[static_cast<size_t>(index)];
    Describe(*nvml, device, gpu);
    AddLinks(*nvml, device, index, machine);
  }
}

}  // namespace telegrad
