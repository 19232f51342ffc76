#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "topology/doctor/check.h"

namespace telegrad::doctor {
namespace {

// Whether `name` of UCX_NET_DEVICES ("mlx5_0:1", "eth0") is there.
bool HasUcxDevice(const Machine& machine, absl::string_view name) {
  if (FindInterface(machine, name) != nullptr) return true;
  for (const Nic& nic : machine.nics) {
    for (const Port& port : nic.ports) {
      if (nic.is_rdma && name == absl::StrCat(nic.name, ":", port.number)) {
        return true;
      }
    }
  }
  return false;
}

// A variable and the choice of ours that it defeats. Source: the
// documentation of UCX, NCCL and libfabric.
struct Setting {
  const char* name;
  const char* choice;
};
constexpr Setting kSettings[] = {
    {"UCX_NET_DEVICES", "the cards and interfaces of ucx"},
    {"UCX_TLS", "whether ucx goes over RDMA, TCP or shared memory"},
    {"UCX_IB_GID_INDEX", "the GID row of each RoCE port, for ucx"},
    {"UCX_IB_NUM_PATHS", "two paths over a bond, for ucx"},
    {"UCX_MAX_RNDV_RAILS", "how many cards a GPU gets, for ucx"},
    {"UCX_HANDLE_ERRORS", "what UCX does with signals"},
    {"UCX_MM_ERROR_HANDLING", "shared memory of ucx, which n switches off"},
    {"UCX_POSIX_ERROR_HANDLING", "shared memory of ucx, which n switches off"},
    {"UCX_CMA_MEMORY_INVALIDATE", "copies between processes (cma) of ucx"},
    {"UCX_MM_RX_BUFS_GROW", "the buffers of ucx's shared memory"},
    {"UCX_POSIX_RX_BUFS_GROW", "the buffers of ucx's shared memory"},
    {"NCCL_IB_HCA", "the cards of NCCL's collectives"},
    {"NCCL_IB_DISABLE", "RDMA for NCCL's collectives"},
    {"NCCL_NET", "the network of NCCL's collectives"},
    {"NCCL_NET_GDR_LEVEL", "GPUDirect RDMA by path, for NCCL"},
    {"NCCL_SOCKET_IFNAME", "the interface of NCCL's collectives"},
    {"GLOO_SOCKET_IFNAME", "the interface of gloo's collectives"},
    {"NCCL_IB_GID_INDEX", "the GID row of each RoCE port, for NCCL"},
    {"FI_PROVIDER", "the provider of ofi"},
    {"TELEGRAD_TRANSPORT", "the network"},
    {"TELEGRAD_TOPO_FILE", "what this machine has"},
    {"TELEGRAD_NICS", "the cards"},
    {"TELEGRAD_GID_INDEX", "the GID row of each RoCE port"},
    {"TELEGRAD_LINK_GBPS", "the rate of the ports"},
    {"TELEGRAD_GDR", "whether GPUDirect RDMA is used"},
    {"TELEGRAD_PREFETCH", "how far ahead codecs ask for memory"},
    {"TELEGRAD_STREAMING", "which arrays codecs write past the caches"}};

// Null where no choice of ours depends on the variable.
const Setting* FindSetting(absl::string_view name) {
  for (const Setting& each : kSettings) {
    if (name == each.name) return &each;
  }
  return nullptr;
}

}  // namespace

void CheckUcxBuild(const Machine& machine, const DoctorOptions&,
                   Report& report) {
  const Capabilities& has = machine.capabilities;
  if (has.ucx_version.empty()) {
    return report.Add(
        Level::kUnknown, "UCX was not asked", Why(machine, "ucx_cuda"),
        "run it on the machine itself, with a build that has UCX");
  }
  const std::string where =
      "Debian's UCX has verbs but no CUDA, PyPI's libucx-cu12 has CUDA but no "
      "verbs; both: conda-forge's ucx, HPC-X, or a build with --with-verbs "
      "--with-cuda";
  if (!machine.gpus.empty() && has.ucx_cuda == Tri::kNo) {
    report.Add(Level::kWarn,
               absl::StrCat("UCX ", has.ucx_version,
                            " cannot send GPU memory; it is staged"),
               Why(machine, "ucx_cuda"), where);
  }
  if (HasRdma(machine) && has.ucx_rdma == Tri::kNo) {
    report.Add(Level::kWarn,
               absl::StrCat("UCX ", has.ucx_version,
                            " offers no RDMA transport; TCP is used"),
               Why(machine, "ucx_rdma"), where);
  }
  if (report.empty()) {
    report.Ok(absl::StrCat("UCX ", has.ucx_version,
                           " has what this machine's devices need"));
  }
}

void CheckEnvironment(const Machine& machine, const DoctorOptions&,
                      Report& report) {
  std::vector<std::string> settings;
  std::vector<std::string> defeats;
  std::vector<std::string> others;
  for (const auto& [name, value] : machine.environment) {
    settings.push_back(absl::StrCat(name, "=", value));
    const Setting* known = FindSetting(name);
    if (known == nullptr) {
      others.push_back(name);
    } else {
      defeats.push_back(
          absl::StrCat(name, " wins over our choice of ", known->choice));
    }
  }
  if (settings.empty() && !ShowsProcesses(machine)) {
    return report.Add(Level::kUnknown,
                      "the source shows no environment variables",
                      machine.source, "run it on the machine itself");
  }
  if (settings.empty()) {
    return report.Ok("no UCX_*, NCCL_*, FI_* or TELEGRAD_* variable is set");
  }
  if (!others.empty()) {
    defeats.push_back(
        absl::StrCat("no choice of ours depends on these settings of yours: ",
                     absl::StrJoin(others, ", ")));
  }
  report.Add(Level::kInfo, absl::StrJoin(defeats, "; "),
             absl::StrJoin(settings, ", "),
             "env | grep -E '^(UCX|NCCL|FI|TELEGRAD)_' names them");
}

void CheckUcxNetDevices(const Machine& machine, const DoctorOptions&,
                        Report& report) {
  const auto found = machine.environment.find("UCX_NET_DEVICES");
  if (found == machine.environment.end() || found->second == "all") {
    return report.Ok("UCX_NET_DEVICES does not restrict UCX");
  }
  const std::vector<std::string> names =
      absl::StrSplit(found->second, ',', absl::SkipEmpty());
  for (const std::string& name : names) {
    const absl::string_view bare = absl::StripPrefix(name, "^");
    if (HasUcxDevice(machine, bare)) continue;
    report.Add(Level::kWarn,
               absl::StrCat("UCX_NET_DEVICES names ", bare,
                            ", which is not here; UCX goes on without it"),
               absl::StrCat("UCX_NET_DEVICES=", found->second),
               "InfiniBand and RoCE devices need their port: mlx5_0:1");
  }
  if (report.empty()) report.Ok("every device of UCX_NET_DEVICES is here");
}

void CheckCodec(const Machine&, const DoctorOptions& options, Report& report) {
  if (!options.codec.has_value()) {
    return report.Add(Level::kUnknown, "no codec was measured on this machine",
                      "",
                      "telegrad-perf calibrate > FILE; telegrad-topo "
                      "doctor --calibration FILE");
  }
  const CodecSpeed& codec = *options.codec;
  const bool pays =
      codec.link_gbps > 0 && codec.link_gbps < codec.break_even_gbps;
  const char* relation = pays ? " < " : " > ";
  const std::string break_even =
      std::isinf(codec.break_even_gbps)
          ? "inf (dense, the transport keeps the cores busier)"
          : Gbps(codec.break_even_gbps);
  report.Add(
      Level::kInfo,
      codec.link_gbps > 0 ? absl::StrCat("compression ", pays ? "pays" : "off",
                                         ": link ", Gbps(codec.link_gbps),
                                         relation, "break-even ", break_even)
                          : absl::StrCat("compression pays below ", break_even),
      absl::StrFormat("%s encodes %.3g GB/s, decodes %.3g GB/s", codec.codec,
                      codec.encode_gbytes_per_s, codec.decode_gbytes_per_s),
      "");
}

}  // namespace telegrad::doctor
