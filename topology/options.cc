#include "topology/options.h"

#include <unistd.h>

#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace telegrad {
namespace {

constexpr size_t kMaxValue = 4096;

// What others understand; values that may be secret are left out.
bool IsOfInterest(absl::string_view name) {
  for (const char* hidden : {"SECRET", "TOKEN", "PASSWORD", "KEY"}) {
    if (absl::StrContains(name, hidden)) return false;
  }
  for (const char* prefix : {"UCX_", "NCCL_", "FI_", "OFI_", "RDMAV_", "MLX5_",
                             "TELEGRAD_", "CUDA_VISIBLE_DEVICES",
                             "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES"}) {
    if (absl::StartsWith(name, prefix)) return true;
  }
  return false;
}

absl::Status Refuse(absl::string_view name, absl::string_view value,
                    absl::string_view wanted) {
  return absl::InvalidArgumentError(
      absl::StrCat(name, "=\"", value, "\": must be ", wanted));
}

absl::Status ReadNumbers(const std::map<std::string, std::string>& environment,
                         TopologyOptions* options) {
  constexpr int kMaxGid = 65535;
  constexpr double kMaxGbps = 100000;
  const auto gid = environment.find("TELEGRAD_GID_INDEX");
  if (gid != environment.end()) {
    int index = 0;
    if (!absl::SimpleAtoi(gid->second, &index) || index < 0 ||
        index > kMaxGid) {
      return Refuse(gid->first, gid->second, "the index of a row, 0 to 65535");
    }
    options->gid_index = index;
  }
  const auto link = environment.find("TELEGRAD_LINK_GBPS");
  if (link != environment.end()) {
    double gbps = 0;
    if (!absl::SimpleAtod(link->second, &gbps) || !(gbps > 0) ||
        gbps > kMaxGbps) {
      return Refuse(link->first, link->second, "gigabits/s, such as 100");
    }
    options->link_gbps = gbps;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TopologyOptions> ParseTopologyOptions(
    const std::map<std::string, std::string>& environment) {
  TopologyOptions options;
  RETURN_IF_ERROR(ReadNumbers(environment, &options));
  const auto text = [&](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? std::string() : found->second;
  };
  options.topo_file = text("TELEGRAD_TOPO_FILE");
  options.nics = text("TELEGRAD_NICS");
  options.transport = text("TELEGRAD_TRANSPORT");
  const std::string gdr = text("TELEGRAD_GDR");
  if (gdr == "on" || gdr == "off") {
    options.gdr = gdr == "on";
  } else if (!gdr.empty() && gdr != "auto") {
    return Refuse("TELEGRAD_GDR", gdr, "on, off or auto");
  }
  for (const auto& [name, value] : environment) {
    if (IsOfInterest(name)) {
      options.environment[name] = value.substr(0, kMaxValue);
    }
  }
  return options;
}

absl::StatusOr<TopologyOptions> TopologyOptionsFromEnvironment() {
  std::map<std::string, std::string> environment;
  for (char** each = environ; each != nullptr && *each != nullptr; ++each) {
    const absl::string_view entry = *each;
    const size_t equals = entry.find('=');
    if (equals == absl::string_view::npos) continue;
    const absl::string_view name = entry.substr(0, equals);
    if (!IsOfInterest(name)) continue;
    environment[std::string(name)] = std::string(entry.substr(equals + 1));
  }
  return ParseTopologyOptions(environment);
}

}  // namespace telegrad
