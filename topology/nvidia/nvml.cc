#include "topology/nvidia/nvml.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"

namespace telegrad::nvidia {
namespace {

// NVML gives no PCI function; GPUs have 0.
Bdf ToBdf(const PciInfo& info) {
  return {.domain = info.domain,
          .bus = static_cast<uint8_t>(info.bus),
          .device = static_cast<uint8_t>(info.device)};
}

using Text = std::array<char, 128>;

}  // namespace

template <typename Function>
bool Nvml::Find(const char* name, Function* function) {
  *function = reinterpret_cast<Function>(::dlsym(library_, name));
  return *function != nullptr;
}

bool Nvml::Load(std::string* why_not) {
  library_ = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library_ == nullptr) {
    *why_not = "libnvidia-ml.so.1 is not there";
    return false;
  }
  int (*init)() = nullptr;
  const bool found = Find("nvmlInit_v2", &init) &&
                     Find("nvmlShutdown", &shutdown_) &&
                     Find("nvmlDeviceGetCount_v2", &count_) &&
                     Find("nvmlDeviceGetHandleByIndex_v2", &handle_) &&
                     Find("nvmlDeviceGetPciInfo_v3", &pci_);
  if (!found) {
    *why_not = "libnvidia-ml.so.1 lacks functions of R396 and later";
    return false;
  }
  Find("nvmlDeviceGetName", &name_);
  Find("nvmlDeviceGetUUID", &uuid_);
  Find("nvmlDeviceGetCudaComputeCapability", &capability_);
  Find("nvmlDeviceGetNvLinkState", &link_state_);
  Find("nvmlDeviceGetNvLinkVersion", &link_version_);
  Find("nvmlDeviceGetNvLinkRemotePciInfo_v2", &remote_);
  Find("nvmlDeviceGetNvLinkRemoteDeviceType", &remote_type_);
  const int rc = init();
  if (rc != 0) *why_not = absl::StrCat("nvmlInit_v2 returned ", rc);
  is_up_ = rc == 0;
  return is_up_;
}

Nvml::~Nvml() {
  if (is_up_) shutdown_();
  if (library_ != nullptr) ::dlclose(library_);
}

std::unique_ptr<Nvml> Nvml::Open(std::string* why_not) {
  std::unique_ptr<Nvml> nvml(new Nvml());
  return nvml->Load(why_not) ? std::move(nvml) : nullptr;
}

unsigned Nvml::CountDevices() const {
  constexpr unsigned kMax = 128;
  unsigned count = 0;
  return count_(&count) == 0 ? std::min(count, kMax) : 0;
}

bool Nvml::GetDevice(unsigned index, Device* device, Bdf* bdf) const {
  PciInfo info{};
  if (handle_(index, device) != 0 || pci_(*device, &info) != 0) return false;
  *bdf = ToBdf(info);
  return true;
}

std::string Nvml::GetName(Device device) const {
  Text text{};
  const bool ok =
      name_ != nullptr && name_(device, text.data(), text.size() - 1) == 0;
  return ok ? text.data() : "";
}

std::string Nvml::GetUuid(Device device) const {
  Text text{};
  const bool ok =
      uuid_ != nullptr && uuid_(device, text.data(), text.size() - 1) == 0;
  return ok ? text.data() : "";
}

int Nvml::GetComputeCapability(Device device) const {
  int major = 0;
  int minor = 0;
  const bool ok =
      capability_ != nullptr && capability_(device, &major, &minor) == 0;
  return ok ? major * 10 + minor : 0;
}

bool Nvml::IsLinkActive(Device device, unsigned link) const {
  unsigned active = 0;
  return link_state_ != nullptr && link_state_(device, link, &active) == 0 &&
         active == 1;
}

int Nvml::GetLinkVersion(Device device, unsigned link) const {
  unsigned version = 0;
  const bool ok =
      link_version_ != nullptr && link_version_(device, link, &version) == 0;
  return ok ? static_cast<int>(version) : 0;
}

int Nvml::GetRemote(Device device, unsigned link, Bdf* bdf) const {
  PciInfo info{};
  if (remote_ == nullptr || remote_(device, link, &info) != 0) return -1;
  *bdf = ToBdf(info);
  unsigned type = 0;
  const bool ok =
      remote_type_ != nullptr && remote_type_(device, link, &type) == 0;
  return ok && type <= 2 ? static_cast<int>(type) : -1;
}

}  // namespace telegrad::nvidia
