#include <cmath>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "topology/doctor/check.h"

namespace telegrad::doctor {
namespace {

constexpr uint64_t kMib = uint64_t{1} << 20;

std::string Mib(uint64_t bytes) { return absl::StrCat(bytes / kMib, " MiB"); }

std::string Cpus(double cpus) {
  return absl::StrFormat("%.4g CPU%s", cpus, cpus == 1 ? "" : "s");
}

// What `processes` on a host need of /dev/shm: libfabric has a segment for
// each, UCX one for each end of a connection (docs/transports.md).
uint64_t ShmFor(int processes) {
  constexpr uint64_t kSegment = 16 * kMib;
  constexpr uint64_t kEnd = kMib;
  const auto n = static_cast<uint64_t>(processes);
  return n * kSegment + n * (n - 1) * kEnd;
}

}  // namespace

void CheckShm(const Machine& machine, const DoctorOptions& options,
              Report& report) {
  // What NCCL and PyTorch's loaders ask for in containers.
  constexpr uint64_t kOthers = 1024 * kMib;
  const Known<uint64_t>& shm = machine.capabilities.shm_bytes;
  const uint64_t wanted = ShmFor(options.processes);
  const char* hint =
      "docker run --shm-size 1g; Kubernetes: an emptyDir with medium: Memory "
      "at /dev/shm; on a host: mount -o remount,size=1G /dev/shm, rm what "
      "others left there";
  if (!shm.known()) {
    return report.Add(Level::kUnknown, "the size of /dev/shm is unknown",
                      Why(shm.why), "df /dev/shm");
  }
  const std::string ours = absl::StrCat(
      options.processes, " processes of a job that share memory take up to ",
      Mib(wanted));
  if (*shm.value < wanted) {
    report.Add(Level::kWarn,
               absl::StrCat("/dev/shm has ", Mib(*shm.value), ", ", ours),
               Why(shm.why), hint);
  } else if (*shm.value < kOthers) {
    report.Add(Level::kInfo,
               absl::StrCat("/dev/shm has ", Mib(*shm.value), ", enough for ",
                            ours, "; NCCL and PyTorch's loaders may want more"),
               Why(shm.why), hint);
  } else {
    report.Ok(absl::StrCat("/dev/shm has ", Mib(*shm.value)), Why(shm.why));
  }
}

void CheckCpuLimit(const Machine& machine, const DoctorOptions& options,
                   Report& report) {
  const Known<double>& limit = machine.capabilities.cpu_limit;
  if (!limit.known()) {
    return report.Add(Level::kUnknown,
                      "how many CPUs a process may use is unknown",
                      Why(limit.why), "nproc; cat /sys/fs/cgroup/cpu.max");
  }
  const std::string of =
      machine.cpus > 0 ? absl::StrCat(" of ", machine.cpus) : "";
  if (*limit.value < options.processes) {
    return report.Add(
        Level::kWarn,
        absl::StrCat(options.processes, " processes of a job share ",
                     Cpus(*limit.value), of, ": they take turns"),
        Why(limit.why),
        "fewer processes on this host; docker run --cpus, Kubernetes "
        "resources.limits.cpu, Slurm --cpus-per-task");
  }
  if (machine.cpus > 0 && std::ceil(*limit.value) < machine.cpus) {
    return report.Add(
        Level::kInfo,
        absl::StrCat("a process may use ", Cpus(*limit.value), of,
                     "; plans count with these"),
        Why(limit.why),
        absl::StrCat("the sum of --threads of this host's processes is best "
                     "at most ",
                     static_cast<int64_t>(*limit.value)));
  }
  report.Ok(absl::StrCat("a process may use ", Cpus(*limit.value)),
            Why(limit.why));
}

void CheckMemoryLimit(const Machine& machine, const DoctorOptions& options,
                      Report& report) {
  const Known<uint64_t>& limit = machine.capabilities.memory_limit_bytes;
  const auto processes = static_cast<uint64_t>(options.processes);
  if (!limit.known()) {
    return report.Add(Level::kUnknown,
                      "whether a control group limits memory is unknown",
                      Why(limit.why),
                      "cat /sys/fs/cgroup/memory.max or "
                      "/sys/fs/cgroup/memory/memory.limit_in_bytes");
  }
  if (*limit.value == UINT64_MAX) {
    return report.Ok("no control group limits memory", Why(limit.why));
  }
  if (*limit.value / processes >= options.registered_bytes) {
    return report.Ok(
        absl::StrCat("the control group gives ", Mib(*limit.value)),
        Why(limit.why));
  }
  report.Add(Level::kWarn,
             absl::StrCat("the control group gives ", Mib(*limit.value), ", ",
                          options.processes, " processes register ",
                          Mib(options.registered_bytes),
                          " each: who goes beyond is killed"),
             Why(limit.why),
             "docker run --memory, Kubernetes resources.limits.memory, Slurm "
             "--mem; or a smaller model, and --registered-mib for this check");
}

}  // namespace telegrad::doctor
