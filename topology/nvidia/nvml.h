#pragma once

#include <memory>
#include <string>

#include "topology/machine.h"

namespace telegrad::nvidia {

// The part of NVML that we ask; nvml.h is not on every machine that builds us.
// Names, types and values are those of nvml.h, which keeps its ABI by the
// suffixes of its functions.
struct PciInfo {
  char bus_id_legacy[16];
  unsigned domain;
  unsigned bus;
  unsigned device;
  unsigned device_id;
  unsigned subsystem_id;
  char bus_id[32];
};
using Device = void*;

class Nvml {
 public:
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;
  static std::unique_ptr<Nvml> Open(std::string* why_not);

  unsigned CountDevices() const;
  bool GetDevice(unsigned index, Device* device, Bdf* bdf) const;
  std::string GetName(Device device) const;
  std::string GetUuid(Device device) const;
  int GetComputeCapability(Device device) const;  // 90 for 9.0; 0: unknown
  bool IsLinkActive(Device device, unsigned link) const;
  int GetLinkVersion(Device device, unsigned link) const;  // 0: unknown
  // What the link leads to: 0 a GPU, 1 an IBM CPU, 2 a switch; -1: unknown.
  int GetRemote(Device device, unsigned link, Bdf* bdf) const;

 private:
  Nvml() = default;
  template <typename Function>
  bool Find(const char* name, Function* function);
  bool Load(std::string* why_not);

  void* library_ = nullptr;
  bool is_up_ = false;
  int (*shutdown_)() = nullptr;
  int (*count_)(unsigned*) = nullptr;
  int (*handle_)(unsigned, Device*) = nullptr;
  int (*pci_)(Device, PciInfo*) = nullptr;
  int (*name_)(Device, char*, unsigned) = nullptr;
  int (*uuid_)(Device, char*, unsigned) = nullptr;
  int (*capability_)(Device, int*, int*) = nullptr;
  int (*link_state_)(Device, unsigned, unsigned*) = nullptr;
  int (*link_version_)(Device, unsigned, unsigned*) = nullptr;
  int (*remote_)(Device, unsigned, PciInfo*) = nullptr;
  int (*remote_type_)(Device, unsigned, unsigned*) = nullptr;
};

}  // namespace telegrad::nvidia
