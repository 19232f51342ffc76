#include "topology/options.h"

#include <unistd.h>

#include <cmath>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"

namespace telegrad {
namespace {

constexpr size_t kMaxValue = 4096;
constexpr int kMaxPort = 255;

// What others understand; values that may be secret are left out.
bool IsOfInterest(absl::string_view name) {
  for (const char* hidden : {"SECRET", "TOKEN", "PASSWORD", "KEY"}) {
    if (absl::StrContains(name, hidden)) return false;
  }
  for (const char* prefix :
       {"UCX_", "NCCL_", "FI_", "OFI_", "RDMAV_", "MLX5_", "TELEGRAD_",
        "GLOO_SOCKET_IFNAME", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER",
        "NVIDIA_VISIBLE_DEVICES"}) {
    if (absl::StartsWith(name, prefix)) return true;
  }
  return false;
}

absl::Status Refuse(absl::string_view name, absl::string_view value,
                    absl::string_view wanted) {
  return absl::InvalidArgumentError(
      absl::StrCat(name, "=\"", value, "\": must be ", wanted));
}

bool ReadNumber(absl::string_view text, int min, int max, int* value) {
  return absl::SimpleAtoi(text, value) && *value >= min && *value <= max;
}

// "3" for all ports, or "mlx5_0:3,mlx5_1:2:5": device, port if need be, row.
absl::Status ReadForcedGids(const std::string& name, const std::string& value,
                            std::vector<ForcedGid>* gids) {
  constexpr int kMaxGid = 65535;
  ForcedGid all;
  if (ReadNumber(value, 0, kMaxGid, &all.index)) {
    *gids = {all};
    return absl::OkStatus();
  }
  for (const absl::string_view item : absl::StrSplit(value, ',')) {
    const std::vector<absl::string_view> parts = absl::StrSplit(item, ':');
    ForcedGid forced = {.nic = std::string(parts.front())};
    bool is_right = !forced.nic.empty() && parts.size() > 1 &&
                    parts.size() <= 3 &&
                    ReadNumber(parts.back(), 0, kMaxGid, &forced.index);
    if (parts.size() == 3) {
      is_right &= ReadNumber(parts[1], 1, kMaxPort, &forced.port);
    }
    if (!is_right) {
      return Refuse(name, value,
                    "the index of a row, 0 to 65535, or a list of DEVICE:INDEX "
                    "and DEVICE:PORT:INDEX, such as mlx5_0:3,mlx5_1:2:5");
    }
    gids->push_back(std::move(forced));
  }
  return absl::OkStatus();
}

// "mlx5_0" or "mlx5_0:1". Of "^a,^b" the second device would be "^b": all would
// stay.
bool IsNic(absl::string_view item) {
  const std::vector<absl::string_view> parts = absl::StrSplit(item, ':');
  int port = 0;
  return !parts[0].empty() && parts.size() <= 2 &&
         item.find_first_of("^=") == absl::string_view::npos &&
         (parts.size() == 1 || ReadNumber(parts[1], 1, kMaxPort, &port));
}

absl::Status CheckNics(absl::string_view text) {
  absl::string_view names = text;
  absl::ConsumePrefix(&names, "^");
  absl::ConsumePrefix(&names, "=");
  for (const absl::string_view item :
       absl::StrSplit(names, ',', absl::SkipEmpty())) {
    if (IsNic(item)) continue;
    return Refuse("TELEGRAD_NICS", text,
                  "a list of DEVICE and DEVICE:PORT; one ^, = or ^= stands "
                  "before all of it, such as ^=mlx5_0,mlx5_1:2");
  }
  return absl::OkStatus();
}

absl::Status ReadNumbers(const std::map<std::string, std::string>& environment,
                         TopologyOptions* options) {
  constexpr double kMaxGbps = 100000;
  const auto gid = environment.find("TELEGRAD_GID_INDEX");
  if (gid != environment.end()) {
    RETURN_IF_ERROR(ReadForcedGids(gid->first, gid->second, &options->gids));
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
  RETURN_IF_ERROR(CheckNics(options.nics));
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
