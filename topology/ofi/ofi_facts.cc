#include "topology/ofi/ofi_facts.h"

#include <rdma/fabric.h>

#include <algorithm>
#include <memory>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/vendor.h"

namespace telegrad {
namespace {

struct InfoDeleter {
  void operator()(fi_info* info) const { fi_freeinfo(info); }
};
using Info = std::unique_ptr<fi_info, InfoDeleter>;

// Names of the providers that have `capabilities`.
std::set<std::string> Providers(uint64_t capabilities) {
  const Info hints(fi_allocinfo());
  if (hints == nullptr) return {};
  hints->caps = capabilities;
  fi_info* list = nullptr;
  if (fi_getinfo(FI_VERSION(1, 17), nullptr, nullptr, 0, hints.get(), &list) !=
      0) {
    return {};
  }
  const Info owner(list);
  std::set<std::string> names;
  for (const fi_info* each = list; each != nullptr; each = each->next) {
    if (each->fabric_attr != nullptr &&
        each->fabric_attr->prov_name != nullptr) {
      names.insert(each->fabric_attr->prov_name);
    }
  }
  return names;
}

Tri Has(const std::set<std::string>& names,
        std::initializer_list<const char*> wanted) {
  for (const std::string& name : names) {
    for (const char* each : wanted) {
      if (absl::StartsWith(name, each)) return Tri::kYes;
    }
  }
  return Tri::kNo;
}

// Providers of a network need a device of it, those that take GPU memory a GPU.
// Asking takes a while: the one of verbs reads all of /proc/kallsyms, twice.
bool HasDevice(const Machine& machine) {
  return !machine.gpus.empty() ||
         std::any_of(machine.nics.begin(), machine.nics.end(),
                     [](const Nic& nic) { return nic.is_rdma; });
}

}  // namespace

void AddOfiFacts(const TopologyOptions& /*options*/, Machine& machine) {
  if (!vendor::OpenOfi().ok()) return;
  Capabilities& capabilities = machine.capabilities;
  const uint32_t version = fi_version();
  capabilities.ofi_version =
      absl::StrCat(FI_MAJOR(version), ".", FI_MINOR(version));
  if (!HasDevice(machine)) {
    capabilities.ofi_efa = Tri::kNo;
    capabilities.ofi_hmem = Tri::kNo;
    for (const char* name : {"ofi_efa", "ofi_hmem"}) {
      capabilities.why[name].push_back(
          {.what = "no RDMA device and no GPU: no provider was asked",
           .source = "/sys/class/infiniband",
           .confidence = Confidence::kInferred});
    }
    return;
  }
  const std::set<std::string> all = Providers(0);
  capabilities.ofi_efa = Has(all, {"efa"});
  capabilities.why["ofi_efa"].push_back({.what = "providers",
                                         .source = "fi_getinfo",
                                         .raw = absl::StrJoin(all, ", ")});
  // Shared memory takes GPU memory too, which helps no network.
  const std::set<std::string> hmem = Providers(FI_HMEM);
  capabilities.ofi_hmem = Has(hmem, {"efa", "verbs", "psm", "opx", "cxi"});
  capabilities.why["ofi_hmem"].push_back({.what = "providers with FI_HMEM",
                                          .source = "fi_getinfo",
                                          .raw = absl::StrJoin(hmem, ", ")});
}

}  // namespace telegrad
