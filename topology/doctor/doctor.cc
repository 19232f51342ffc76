#include "topology/doctor.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "topology/doctor/check.h"

namespace telegrad {
namespace doctor {

std::string Word(absl::string_view name) {
  const bool is_plain =
      !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
        return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
               absl::StrContains("_.:@-^=,/", c);
      });
  if (is_plain) return std::string(name);
  return absl::StrCat("'", absl::StrReplaceAll(name, {{"'", "'\\''"}}), "'");
}

namespace {

constexpr MachineCheck kMachineChecks[] = {
    {"T01", "rdma-devnodes", &CheckDeviceNodes},
    {"T02", "memlock", &CheckMemlock},
    {"T03", "port-down", &CheckPortDown},
    {"T04", "mixed-link-layer", &CheckMixedLinkLayer},
    {"T05", "gid-none", &CheckGidNone},
    {"T06", "gid-ambiguous", &CheckGidAmbiguous},
    {"T08", "mtu", &CheckMtu},
    {"T09", "rate", &CheckRate},
    {"T10", "speed-unknown", &CheckSpeedUnknown},
    {"T11", "virtual-if", &CheckVirtualInterface},
    {"T12", "gdr-no", &CheckGdr},
    {"T14", "module-rename", &CheckModuleRename},
    {"T15", "acs", &CheckAcs},
    {"T16", "iommu", &CheckIommu},
    {"T17", "far-nic", &CheckFarNic},
    {"T18", "shared-nic", &CheckSharedNic},
    {"T21", "ucx-build", &CheckUcxBuild},
    {"T22", "env-override", &CheckEnvironment},
    {"T23", "ucx-net-ignored", &CheckUcxNetDevices},
    {"T24", "pfc-ecn", &CheckFlowControl},
    {"T25", "bond", &CheckBond},
    {"T26", "vm-flat", &CheckFlatVm},
    {"T27", "numa-unknown", &CheckNumaUnknown},
    {"T28", "codec", &CheckCodec},
    {"T29", "shm", &CheckShm},
    {"T30", "cpu-limit", &CheckCpuLimit},
    {"T31", "memory-limit", &CheckMemoryLimit},
};

constexpr ClusterCheck kClusterChecks[] = {
    {"T07", "gid-differs", &CompareGids},
    {"T08", "mtu", &CompareMtus},
    {"T13", "gdr-mismatch", &CompareGdr},
    {"T19", "topo-differs", &CompareTopologies},
    {"T20", "rail", &CompareRails},
};

void Append(std::vector<Finding> from, std::vector<Finding>& to) {
  to.insert(to.end(), std::make_move_iterator(from.begin()),
            std::make_move_iterator(from.end()));
}

}  // namespace
}  // namespace doctor

std::vector<Finding> Examine(const Machine& machine,
                             const DoctorOptions& options) {
  std::vector<Finding> findings;
  for (const doctor::MachineCheck& check : doctor::kMachineChecks) {
    doctor::Report report(check.id, check.name, machine.host);
    check.run(machine, options, report);
    doctor::Append(report.Take(), findings);
  }
  return findings;
}

std::vector<Finding> Compare(std::span<const Machine> machines) {
  std::vector<Finding> findings;
  for (const doctor::ClusterCheck& check : doctor::kClusterChecks) {
    doctor::Report report(check.id, check.name, "");
    check.run(machines, report);
    doctor::Append(report.Take(), findings);
  }
  return findings;
}

ExitCode ExitCodeOf(std::span<const Finding> findings) {
  Level worst = Level::kOk;
  for (const Finding& each : findings) worst = std::max(worst, each.severity);
  if (worst == Level::kFail) return ExitCode::kFailures;
  return worst == Level::kWarn ? ExitCode::kWarnings : ExitCode::kOk;
}

const char* Name(Level severity) {
  switch (severity) {
    case Level::kOk:
      return "OK";
    case Level::kInfo:
      return "INFO";
    case Level::kUnknown:
      return "UNKNOWN";
    case Level::kWarn:
      return "WARN";
    case Level::kFail:
      return "FAIL";
  }
  return "UNKNOWN";
}

std::string ToText(std::span<const Finding> findings) {
  std::string text;
  for (const Finding& each : findings) {
    absl::StrAppend(&text, "[", Name(each.severity), "] ", each.id, " ",
                    each.name, ": ", each.sentence);
    if (!each.evidence.empty()) {
      absl::StrAppend(&text, " (", each.evidence, ")");
    }
    absl::StrAppend(&text, "\n");
    if (!each.hint.empty()) absl::StrAppend(&text, "  hint: ", each.hint, "\n");
  }
  const auto count = [&](Level level) {
    return std::ranges::count(findings, level, &Finding::severity);
  };
  return absl::StrCat(text, count(Level::kFail), " will fail, ",
                      count(Level::kWarn), " to mind, ", count(Level::kOk),
                      " are well, of ", findings.size(), "; exit code ",
                      static_cast<int>(ExitCodeOf(findings)), "\n");
}

std::string ToJson(std::span<const Finding> findings) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  int failures = 0;
  int warnings = 0;
  for (const Finding& each : findings) {
    list.push_back({{"id", each.id},
                    {"name", each.name},
                    {"severity", Name(each.severity)},
                    {"host", each.host},
                    {"sentence", each.sentence},
                    {"evidence", each.evidence},
                    {"hint", each.hint}});
    failures += each.severity == Level::kFail;
    warnings += each.severity == Level::kWarn;
  }
  const nlohmann::ordered_json all = {
      {"findings", std::move(list)},
      {"failures", failures},
      {"warnings", warnings},
      {"exit_code", static_cast<int>(ExitCodeOf(findings))}};
  return all.dump(1, ' ', false,
                  nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace telegrad
