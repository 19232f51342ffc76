#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "topology/detect.h"
#include "topology/detect/gid.h"
#include "topology/detect/infiniband.h"

namespace telegrad {
namespace {

// TELEGRAD_NICS: "mlx5_0,mlx5_1:1" by the start of names, "=mlx5_1" exactly,
// "^mlx5_2" and "^=mlx5_2" all others. Source: NCCL_IB_HCA.
class NicFilter {
 public:
  explicit NicFilter(absl::string_view text)
      : excludes_(absl::ConsumePrefix(&text, "^")),
        is_exact_(absl::ConsumePrefix(&text, "=")) {
    for (const absl::string_view item :
         absl::StrSplit(text, ',', absl::SkipEmpty())) {
      const std::pair<absl::string_view, absl::string_view> parts =
          absl::StrSplit(item, absl::MaxSplits(':', 1));
      int port = 0;
      if (!absl::SimpleAtoi(parts.second, &port)) port = 0;
      items_.push_back({std::string(parts.first), port});
    }
  }

  bool Keeps(const std::string& nic, int port) const {
    for (const Item& item : items_) {
      const bool is_name =
          is_exact_ ? nic == item.name : absl::StartsWith(nic, item.name);
      if (is_name && (item.port == 0 || item.port == port)) return !excludes_;
    }
    return excludes_;
  }

 private:
  struct Item {
    std::string name = {};
    int port = 0;  // 0: any
  };
  bool excludes_;
  bool is_exact_;
  std::vector<Item> items_ = {};
};

void SelectNics(const std::string& text, Machine& machine) {
  const NicFilter filter(text);
  // A machine from a file is to name them, too.
  machine.environment["TELEGRAD_NICS"] = text;
  for (size_t i = 0; i < machine.nics.size();) {
    Nic& nic = machine.nics[i];
    std::erase_if(nic.ports, [&](const Port& port) {
      return !filter.Keeps(nic.name, port.number);
    });
    if (!nic.ports.empty()) {
      ++i;
      continue;
    }
    machine.notes.push_back({.what = nic.name + " is left out",
                             .source = "env TELEGRAD_NICS",
                             .raw = text,
                             .confidence = Confidence::kAssumed});
    const auto at = static_cast<std::ptrdiff_t>(i);
    machine.nics.erase(machine.nics.begin() + at);
    for (std::vector<PathInfo>& row : machine.gpu_nic) {
      row.erase(row.begin() + at);
    }
  }
}

void ForceGid(const Machine& machine, const std::string& name, int index,
              Port& port) {
  Evidence why = {.what = absl::StrCat(name, ": forced by TELEGRAD_GID_INDEX"),
                  .source = "env TELEGRAD_GID_INDEX",
                  .raw = absl::StrCat(index),
                  .confidence = Confidence::kAssumed};
  const auto row =
      std::find_if(port.gids.begin(), port.gids.end(),
                   [&](const Gid& gid) { return gid.index == index; });
  port.chosen_gid.value.reset();
  if (row == port.gids.end()) {
    why.what = absl::StrCat(name, ": no GID: the table has ", port.gids.size(),
                            " rows that are readable and not empty, and ",
                            index, " is none of them");
    port.chosen_gid.why.push_back(std::move(why));
    return;
  }
  port.chosen_gid.value = index;
  port.chosen_gid.why.push_back(std::move(why));
  detect::TakeRoceVersion(*row, port);
  if (row->net_interface.empty() || row->net_interface == port.net_interface) {
    return;
  }
  port.net_interface = row->net_interface;
  port.active_mtu = {};
  detect::FillRoceMtu(machine, port);
}

void ForceGids(const std::vector<ForcedGid>& gids, Machine& machine) {
  std::vector<bool> used(gids.size());
  for (Nic& nic : machine.nics) {
    for (Port& port : nic.ports) {
      const auto fits = [&](const ForcedGid& each) {
        return (each.nic.empty() || each.nic == nic.name) &&
               (each.port == 0 || each.port == port.number);
      };
      const auto forced = std::find_if(gids.begin(), gids.end(), fits);
      if (forced == gids.end() || !IsRoce(port)) continue;
      used[static_cast<size_t>(forced - gids.begin())] = true;
      ForceGid(machine, absl::StrCat(nic.name, "/", port.number), forced->index,
               port);
    }
  }
  for (size_t i = 0; i < gids.size(); ++i) {
    if (used[i] || gids[i].nic.empty()) continue;
    const std::string port =
        gids[i].port == 0 ? "" : absl::StrCat(":", gids[i].port);
    machine.notes.push_back(
        {.what = "names no RoCE port",
         .source = "env TELEGRAD_GID_INDEX",
         .raw = absl::StrCat(gids[i].nic, port, ":", gids[i].index),
         .confidence = Confidence::kAssumed});
  }
}

void ForceLinkRate(double gbps, Machine& machine) {
  for (Nic& nic : machine.nics) {
    for (Port& port : nic.ports) {
      port.gbps.value = gbps;
      port.gbps.why.insert(port.gbps.why.begin(),
                           {.what = "forced by TELEGRAD_LINK_GBPS",
                            .source = "env TELEGRAD_LINK_GBPS",
                            .raw = absl::StrCat(gbps),
                            .confidence = Confidence::kAssumed});
    }
  }
}

}  // namespace

void ApplyOverrides(const TopologyOptions& options, Machine& machine) {
  ForceGids(options.gids, machine);
  if (!options.nics.empty()) SelectNics(options.nics, machine);
  if (options.link_gbps.has_value()) {
    ForceLinkRate(*options.link_gbps, machine);
  }
  if (options.gdr.has_value()) {
    machine.capabilities.gdr = *options.gdr ? Tri::kYes : Tri::kNo;
    machine.capabilities.why["gdr"] = {{.what = "forced by TELEGRAD_GDR",
                                        .source = "env TELEGRAD_GDR",
                                        .raw = *options.gdr ? "on" : "off",
                                        .confidence = Confidence::kAssumed}};
  }
}

}  // namespace telegrad
