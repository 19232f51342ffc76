#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "topology/detect.h"

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
