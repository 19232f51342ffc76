#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "kernels/dispatch.h"
#include "kvstore/job/path/data_path.h"
#include "kvstore/kvstore.h"
#include "kvstore/local/local_store.h"
#include "kvstore/nccl/group_store.h"
#include "kvstore/ps/hosts/host_store.h"
#include "kvstore/ps/worker/worker.h"
#include "kvstore/tier_one/tier_one_store.h"

namespace telegrad {
namespace {

using Factory = std::unique_ptr<KVStore> (*)(const StoreOptions&,
                                             const StoreTraits&, WorkerGroup*);

std::unique_ptr<KVStore> MakeDist(const StoreOptions& options,
                                  const StoreTraits& traits,
                                  WorkerGroup* group) {
  return std::make_unique<DistWorker>(options, traits, *group);
}

std::unique_ptr<KVStore> MakeLocal(const StoreOptions& options,
                                   const StoreTraits& traits,
                                   WorkerGroup* group) {
  return std::make_unique<LocalStore>(options, traits, group, 1);
}

std::unique_ptr<KVStore> MakeDevice(const StoreOptions& options,
                                    const StoreTraits& traits,
                                    WorkerGroup* group) {
  std::string why_not;
  if (!kernels::HasCudaDevice(&why_not)) {
    LogInfo("kvstore type device: its ", options.num_devices,
            " devices are of the CPU: ", why_not);
  }
  return std::make_unique<LocalStore>(options, traits, group,
                                      options.num_devices);
}

struct Entry {
  StoreTraits traits;
  Factory factory;
};

constexpr char kNccl[] = "nccl";

std::unique_ptr<KVStore> MakeNccl(const StoreOptions& options,
                                  const StoreTraits& traits,
                                  WorkerGroup* group) {
  return std::make_unique<GroupStore>(options, traits, group, kNccl);
}

// Another name of a type.
struct Alias {
  const char* name;
  const char* type;
  const char* says = "";  // why it is one, where that is news
};

constexpr int kMaxDevices = 64;

constexpr Entry kStores[] = {
    {{.type = "local",
      .summary = "devices of one process, summed on its CPU",
      .max_devices = kMaxDevices,
      .takes_devices = true},
     MakeLocal},
    {{.type = "device",
      .summary = "devices of one process, a place for sums on each",
      .max_devices = kMaxDevices,
      .takes_devices = true},
     MakeDevice},
    {{.type = kNccl,
      .summary = "GPUs of one process, summed by NCCL, dense",
      .max_devices = kMaxDevices,
      .takes_devices = true,
      .needs_gpus = true},
     MakeNccl},
    {{.type = "dist_sync",
      .summary = "servers sum the pushes of all workers",
      .has_workers = true,
      .max_devices = kMaxDevices,
      .takes_devices = true},
     MakeDist},
    {{.type = "dist_async",
      .summary = "servers step the weights with each push at once",
      .has_workers = true,
      .max_devices = kMaxDevices,
      .is_async = true},
     MakeDist},
    {{.type = "allreduce",
      .summary = "workers sum for each other, without servers",
      .has_workers = true,
      .max_devices = kMaxDevices,
      .hosts_parts = true,
      .takes_devices = true},
     MakeDist},
};

// What workers of one host sum by.
constexpr StoreTraits kHostTraits = {
    .type = "allreduce", .has_workers = true, .hosts_parts = true};

constexpr Alias kAliases[] = {
    {"local_update_cpu", "local"},
    {"local_allreduce_cpu", "local"},
    {"local_allreduce_device", "device"},
    {"dist", "dist_sync"},
    {"dist_device_sync", "dist_sync"},
    {"dist_sync_device", "dist_sync"},
    {"dist_async_device", "dist_async"},
    {"dist_device_async", "dist_async"},
    {"p3", "dist_sync", "slices and priorities are always on"},
    {"byteps", "dist_sync", "slices and priorities are always on"},
    {"horovod", "allreduce"},
};

std::string Names() {
  std::string names;
  const auto add = [&names](absl::string_view name) {
    absl::StrAppend(&names, names.empty() ? "" : ", ", name);
  };
  for (const Entry& entry : kStores) add(entry.traits.type);
  for (const Alias& alias : kAliases) add(alias.name);
  return names;
}

// `alias` gets the one by which it was found, else null.
absl::StatusOr<const Entry*> FindEntry(absl::string_view type,
                                       const Alias** alias) {
  std::string name = absl::AsciiStrToLower(type);
  *alias = nullptr;
  for (const Alias& each : kAliases) {
    if (name != each.name) continue;
    *alias = &each;
    name = each.type;
  }
  for (const Entry& entry : kStores) {
    if (name == entry.traits.type) return &entry;
  }
  return absl::NotFoundError(
      absl::StrCat("no kvstore type '", type, "'; there are ", Names()));
}

// A store for workers among which the plan lets one of each host push.
absl::StatusOr<std::unique_ptr<KVStore>> MakeForHosts(
    const StoreOptions& options, const Entry& entry, WorkerGroup& group) {
  if (entry.traits.is_async) {
    return absl::InvalidArgumentError(absl::StrCat(
        "kvstore type '", entry.traits.type,
        "' does not wait for other workers, as those of a host would with tier "
        "one between processes: join with tier1 off"));
  }
  StoreOptions one = options;
  one.num_devices = 1;
  ASSIGN_OR_RETURN(std::unique_ptr<HostWorkers> workers,
                   HostWorkers::Join(group, options.num_threads));
  StoreOptions within = one;
  within.timeline = nullptr;  // its keys' stages are those between hosts
  const auto make = [](const StoreOptions& own, const StoreTraits& traits) {
    return [&own, &traits](WorkerGroup& of) {
      return std::make_unique<DistWorker>(own, traits, of);
    };
  };
  return std::make_unique<TierOneStore>(
      options,
      std::make_unique<HostStore>(one, entry.traits, group, std::move(workers),
                                  make(within, kHostTraits),
                                  make(one, entry.traits)),
      /*on_gpus=*/false);
}

// Rounds that go on without some workers are sums that servers make.
absl::Status CheckDropped(absl::string_view type, const StoreTraits& traits,
                          int drop_slowest, const WorkerGroup* group) {
  if (drop_slowest == 0) return absl::OkStatus();
  const auto refuse = [&](const auto&... why) {
    return absl::InvalidArgumentError(absl::StrCat("kvstore type '", type,
                                                   "' with drop_slowest ",
                                                   drop_slowest, ": ", why...));
  };
  if (!traits.has_workers || traits.is_async || traits.hosts_parts) {
    return refuse(traits.is_async ? "its workers do not wait for each other"
                  : traits.hosts_parts
                      ? "each worker sums a part, for which all wait"
                      : "it has no servers",
                  "; take dist_sync");
  }
  const int num_pushers = group == nullptr ? 0 : group->num_pushers();
  if (drop_slowest < 0 || drop_slowest >= num_pushers) {
    return refuse("0 to ", num_pushers - 1, ", as ", num_pushers,
                  " workers push");
  }
  if (group->data_path().plan.pushers.empty()) return absl::OkStatus();
  return refuse(
      "workers of a host wait for each other with tier one between processes: "
      "join with tier1 off");
}

absl::Status CheckUpdater(absl::string_view type, const StoreTraits& traits) {
  if (!traits.has_workers && !traits.needs_gpus) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "kvstore type '", type, "' takes no updater: ",
      traits.has_workers
          ? "servers run no function of a worker's; take one of the "
            "optimizers (SetOptimizer), or step the weights on the workers"
          : "it leaves weights to its devices; 'local' and 'device' take one"));
}

absl::Status CheckGroup(absl::string_view type, const StoreTraits& traits,
                        const WorkerGroup* group) {
  const auto refuse = [type](const auto&... why) {
    return absl::FailedPreconditionError(
        absl::StrCat("kvstore type '", type, "' ", why...));
  };
  if (!traits.has_workers) {
    if (group == nullptr || group->num_workers() == 1) return absl::OkStatus();
    return refuse("sums within one process, but the job has ",
                  group->num_workers(),
                  " workers: they would train apart; take dist_sync");
  }
  if (!traits.hosts_parts) {
    if (group != nullptr && group->num_servers() > 0) return absl::OkStatus();
    return refuse("needs a job with servers; 'local' needs none");
  }
  if (group == nullptr || group->options().part == nullptr) {
    return refuse(
        "needs workers that have joined with a part of the sums "
        "(JobOptions::part; in C and Python hosts_part)");
  }
  if (group->num_servers() == group->num_workers()) return absl::OkStatus();
  return refuse("has a part for each worker; the job has ",
                group->num_servers(), " for ", group->num_workers());
}

}  // namespace

absl::StatusOr<std::unique_ptr<KVStore>> MakeKVStore(
    absl::string_view type, const StoreOptions& options, WorkerGroup* group) {
  const Alias* alias = nullptr;
  ASSIGN_OR_RETURN(const Entry* entry, FindEntry(type, &alias));
  const StoreTraits& traits = entry->traits;
  if (options.num_devices < 1 || options.num_devices > traits.max_devices) {
    return absl::InvalidArgumentError(
        absl::StrCat("kvstore type '", type, "' with ", options.num_devices,
                     " devices; it takes 1 to ", traits.max_devices));
  }
  if (!traits.is_async && options.max_staleness != kAnyStaleness) {
    return absl::InvalidArgumentError(
        absl::StrCat("kvstore type '", type, "' has no staleness to bound by ",
                     options.max_staleness, " steps: that is for dist_async"));
  }
  if (options.updater != nullptr) RETURN_IF_ERROR(CheckUpdater(type, traits));
  RETURN_IF_ERROR(CheckGroup(type, traits, group));
  RETURN_IF_ERROR(CheckDropped(type, traits, options.drop_slowest, group));
  RETURN_IF_ERROR(CheckStoreType(type, options.num_devices));
  const bool is_first = group == nullptr || group->rank() == 0;
  if (alias != nullptr && alias->says[0] != '\0' && is_first) {
    LogInfo("kvstore type ", alias->name, " is ", alias->type, ": ",
            alias->says);
  }
  const bool has_hosts =
      traits.has_workers && !group->data_path().plan.pushers.empty();
  if (has_hosts) return MakeForHosts(options, *entry, *group);
  if (!traits.has_workers || options.num_devices == 1) {
    return entry->factory(options, traits, group);
  }
  StoreOptions second = options;
  second.num_devices = 1;
  return std::make_unique<TierOneStore>(
      options, entry->factory(second, traits, group), /*on_gpus=*/true);
}

absl::StatusOr<StoreTraits> FindStoreType(absl::string_view type) {
  const Alias* alias = nullptr;
  ASSIGN_OR_RETURN(const Entry* entry, FindEntry(type, &alias));
  return entry->traits;
}

absl::Status CheckStoreType(absl::string_view type, int num_devices) {
  ASSIGN_OR_RETURN(const StoreTraits traits, FindStoreType(type));
  if (!traits.needs_gpus) return absl::OkStatus();
  const absl::Status status = GroupStore::Check(kNccl, num_devices);
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat("kvstore type '", type,
                                                  "': ", status.message()));
}

std::vector<StoreTraits> StoreTypes() {
  std::vector<StoreTraits> types;
  for (const Entry& entry : kStores) types.push_back(entry.traits);
  return types;
}

std::string DescribeKVStores() {
  std::string text;
  for (const Entry& entry : kStores) {
    absl::StrAppendFormat(&text, "%-23s %s\n", entry.traits.type,
                          entry.traits.summary);
    for (const Alias& alias : kAliases) {
      if (absl::string_view(alias.type) != entry.traits.type) continue;
      absl::StrAppendFormat(&text, "%-23s = %s%s%s\n", alias.name, alias.type,
                            alias.says[0] != '\0' ? ": " : "", alias.says);
    }
  }
  return text;
}

}  // namespace telegrad
