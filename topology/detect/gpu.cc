#include "topology/detect/gpu.h"

#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace telegrad::detect {
namespace {

constexpr size_t kMaxGpus = 128;

// The value of "Model: \t\t NVIDIA H100" in the driver's file.
std::string Field(absl::string_view text, absl::string_view name) {
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(line, absl::MaxSplits(':', 1));
    if (absl::StripAsciiWhitespace(parts.first) == name) {
      return Printable(absl::StripAsciiWhitespace(parts.second));
    }
  }
  return "";
}

bool IsGpu(const SysRoot& root, const std::string& folder) {
  const Known<uint32_t> device_class =
      ReadKnown<uint32_t>(root, folder + "/class", "PCI class", 0, 0xffffff);
  const Known<uint32_t> vendor =
      ReadKnown<uint32_t>(root, folder + "/vendor", "vendor", 0, 0xffff);
  return IsGpuFunction(device_class.value_or(0), vendor.value_or(0));
}

Gpu MakeGpu(const PciTree& pci, const Bdf& bdf) {
  Gpu gpu;
  gpu.name = ToString(bdf);
  gpu.bdf = bdf;
  gpu.position = pci.PositionOf("/sys/bus/pci/devices/" + gpu.name);
  return gpu;
}

}  // namespace

void AddGpus(const SysRoot& root, const PciTree& pci, Machine& machine) {
  std::map<Bdf, Gpu> gpus;
  const std::string devices = "/sys/bus/pci/devices/";
  for (const std::string& name : root.List(devices)) {
    Bdf bdf;
    if (gpus.size() < kMaxGpus && ParseBdf(name, &bdf) &&
        IsGpu(root, devices + name)) {
      gpus[bdf] = MakeGpu(pci, bdf);
    }
  }
  const std::string driver = "/proc/driver/nvidia/gpus/";
  for (const std::string& name : root.List(driver)) {
    Bdf bdf;
    if (!ParseBdf(name, &bdf)) continue;
    if (gpus.count(bdf) == 0) {
      if (gpus.size() >= kMaxGpus) break;
      gpus[bdf] = MakeGpu(pci, bdf);
    }
    const Line line =
        ReadLine(root, absl::StrCat(driver, name, "/information"));
    gpus[bdf].model = Field(line.text, "Model");
    gpus[bdf].uuid = Field(line.text, "GPU UUID");
  }
  for (auto& [bdf, gpu] : gpus) machine.gpus.push_back(std::move(gpu));
}

}  // namespace telegrad::detect
