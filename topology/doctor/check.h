#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "topology/doctor.h"

namespace telegrad::doctor {

// A name as a shell takes it for one word: quoted where it has more in it than
// names of devices have. Dumps come from others.
std::string Word(absl::string_view name);

// Collects what one check says about one machine or all.
class Report {
 public:
  Report(const char* id, const char* name, std::string host)
      : id_(id), name_(name), host_(std::move(host)) {}

  void Ok(std::string sentence, std::string evidence = "") {
    Add(Level::kOk, std::move(sentence), std::move(evidence), "");
  }
  void Add(Level severity, std::string sentence, std::string evidence,
           std::string hint) {
    findings_.push_back({.id = id_,
                         .name = name_,
                         .severity = severity,
                         .sentence = std::move(sentence),
                         .evidence = std::move(evidence),
                         .hint = std::move(hint),
                         .host = host_});
  }
  bool empty() const { return findings_.empty(); }
  std::vector<Finding> Take() { return std::move(findings_); }

 private:
  const char* id_;
  const char* name_;
  std::string host_;
  std::vector<Finding> findings_ = {};
};

// One line of the table in doctor.cc; `run` adds at least one finding.
struct MachineCheck {
  const char* id;
  const char* name;
  void (*run)(const Machine&, const DoctorOptions&, Report&);
};
struct ClusterCheck {
  const char* id;
  const char* name;
  void (*run)(std::span<const Machine>, Report&);
};

// ports.cc
void CheckDeviceNodes(const Machine&, const DoctorOptions&, Report&);
void CheckMemlock(const Machine&, const DoctorOptions&, Report&);
void CheckPortDown(const Machine&, const DoctorOptions&, Report&);
void CheckMixedLinkLayer(const Machine&, const DoctorOptions&, Report&);
void CheckRate(const Machine&, const DoctorOptions&, Report&);
// gid.cc
void CheckGidNone(const Machine&, const DoctorOptions&, Report&);
void CheckGidAmbiguous(const Machine&, const DoctorOptions&, Report&);
void CheckMtu(const Machine&, const DoctorOptions&, Report&);
// container.cc
void CheckShm(const Machine&, const DoctorOptions&, Report&);
void CheckCpuLimit(const Machine&, const DoctorOptions&, Report&);
void CheckMemoryLimit(const Machine&, const DoctorOptions&, Report&);
// interfaces.cc
void CheckSpeedUnknown(const Machine&, const DoctorOptions&, Report&);
void CheckVirtualInterface(const Machine&, const DoctorOptions&, Report&);
void CheckFlowControl(const Machine&, const DoctorOptions&, Report&);
void CheckBond(const Machine&, const DoctorOptions&, Report&);
// gpudirect.cc
void CheckGdr(const Machine&, const DoctorOptions&, Report&);
void CheckModuleRename(const Machine&, const DoctorOptions&, Report&);
void CheckAcs(const Machine&, const DoctorOptions&, Report&);
void CheckIommu(const Machine&, const DoctorOptions&, Report&);
// placement.cc
void CheckFarNic(const Machine&, const DoctorOptions&, Report&);
void CheckSharedNic(const Machine&, const DoctorOptions&, Report&);
void CheckFlatVm(const Machine&, const DoctorOptions&, Report&);
void CheckNumaUnknown(const Machine&, const DoctorOptions&, Report&);
// software.cc
void CheckUcxBuild(const Machine&, const DoctorOptions&, Report&);
void CheckEnvironment(const Machine&, const DoctorOptions&, Report&);
void CheckUcxNetDevices(const Machine&, const DoctorOptions&, Report&);
void CheckCodec(const Machine&, const DoctorOptions&, Report&);
// cluster.cc
void CompareGids(std::span<const Machine>, Report&);
void CompareMtus(std::span<const Machine>, Report&);
void CompareGdr(std::span<const Machine>, Report&);
void CompareTopologies(std::span<const Machine>, Report&);
void CompareRails(std::span<const Machine>, Report&);

// facts.cc: what several checks ask.
constexpr int kActiveState = 4;
bool IsActive(const Port& port);
bool HasRdma(const Machine& machine);         // any RDMA device
bool HasUnknownPort(const Machine& machine);  // an RDMA port of unknown state
// Whether the source shows a process's view: a live machine, or a dump of one.
bool ShowsProcesses(const Machine& machine);
bool HasGpuAndRdma(const Machine& machine);              // GPUDirect may matter
std::string PortName(const Nic& nic, const Port& port);  // "mlx5_0/1"
// As TELEGRAD_NICS and TELEGRAD_GID_INDEX name it: "mlx5_0", of a device with
// several ports "mlx5_0:1".
std::string OverrideName(const Nic& nic, const Port& port);
std::string Gbps(double gbps);  // "400 Gb/s"
const NetInterface* FindInterface(const Machine&, absl::string_view name);
// Joined evidence of Capabilities::why[key]: "SOURCE = RAW; ...".
std::string Why(const Machine& machine, const std::string& key);
std::string Why(const std::vector<Evidence>& why);

// selection.cc: which ports are used, for T04 and T09.
// Active RDMA ports that can talk to each other.
struct FabricGroup {
  Fabric fabric = Fabric::kUnknown;
  std::vector<std::string> nics = {};  // one entry for each port
  bool has_slow = false;               // T09's
};
std::map<std::string, FabricGroup> GroupsOf(const Machine& machine);
// The largest; empty where there is none.
std::string KeptGroup(const std::map<std::string, FabricGroup>& groups);
using BestRates = std::map<Fabric, double>;  // rates of active RDMA ports
BestRates BestRatesOf(const Machine& machine);
bool IsSlow(const Port& port, const BestRates& best);
// "export TELEGRAD_NICS=...": without all ports that T04 and T09 would leave
// out, nor those that the variable leaves out now. One for all hints: a
// variable that is set twice keeps the last.
std::string SelectedNics(const Machine& machine);

}  // namespace telegrad::doctor
