#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "kvstore/kvstore.h"
#include "kvstore/local/local_store.h"
#include "kvstore/ps/worker.h"

namespace telegrad {
namespace {

using Factory = std::unique_ptr<KVStore> (*)(const StoreOptions&,
                                             const StoreTraits&, WorkerGroup*);

std::unique_ptr<KVStore> MakeDistSync(const StoreOptions& options,
                                      const StoreTraits& traits,
                                      WorkerGroup* group) {
  return std::make_unique<DistWorker>(options, traits, *group);
}

std::unique_ptr<KVStore> MakeLocal(const StoreOptions& options,
                                   const StoreTraits& traits,
                                   WorkerGroup* group) {
  return std::make_unique<LocalStore>(options, traits, group);
}

struct Entry {
  StoreTraits traits;
  Factory factory;  // null: known from MXNet, not built yet
  bool is_alias = false;
};

constexpr int kMaxDevices = 64;

constexpr Entry kStores[] = {
    {{"local", "devices of one process, summed on its CPU", false, kMaxDevices},
     MakeLocal},
    {{"dist_sync", "servers sum the pushes of all workers", true},
     MakeDistSync},
    {{"dist", "dist_sync", true}, MakeDistSync, true},
    {{"dist_device_sync", "dist_sync", true}, MakeDistSync, true},
    {{"dist_sync_device", "dist_sync", true}, MakeDistSync, true},
    {{"device"}, nullptr},
    {{"nccl"}, nullptr},
    {{"dist_async"}, nullptr},
    {{"dist_device_async"}, nullptr},
    {{"dist_async_device"}, nullptr},
    {{"p3"}, nullptr},
    {{"horovod"}, nullptr},
    {{"byteps"}, nullptr},
};

absl::StatusOr<const Entry*> FindEntry(absl::string_view type) {
  std::string built;
  for (const Entry& entry : kStores) {
    if (entry.factory != nullptr) {
      absl::StrAppend(&built, built.empty() ? "" : ", ", entry.traits.type);
      if (type == entry.traits.type) return &entry;
    } else if (type == entry.traits.type) {
      return absl::UnimplementedError(absl::StrCat(
          "kvstore type '", type, "' is not built yet; there are ", built));
    }
  }
  return absl::NotFoundError(
      absl::StrCat("no kvstore type '", type, "'; there are ", built));
}

}  // namespace

absl::StatusOr<std::unique_ptr<KVStore>> MakeKVStore(
    absl::string_view type, const StoreOptions& options, WorkerGroup* group) {
  ASSIGN_OR_RETURN(const Entry* entry, FindEntry(type));
  const StoreTraits& traits = entry->traits;
  if (options.num_devices < 1 || options.num_devices > traits.max_devices) {
    return absl::InvalidArgumentError(
        absl::StrCat("kvstore type '", type, "' with ", options.num_devices,
                     " devices; it takes 1 to ", traits.max_devices));
  }
  if (traits.has_workers && (group == nullptr || group->num_servers() == 0)) {
    return absl::FailedPreconditionError(
        absl::StrCat("kvstore type '", type,
                     "' needs a job with servers; 'local' needs "
                     "none"));
  }
  if (!traits.has_workers && group != nullptr && group->num_workers() > 1) {
    return absl::FailedPreconditionError(absl::StrCat(
        "kvstore type '", type, "' sums within one process, but the job has ",
        group->num_workers(),
        " workers: they would train apart; take "
        "dist_sync"));
  }
  return entry->factory(options, traits, group);
}

absl::StatusOr<StoreTraits> FindStoreType(absl::string_view type) {
  ASSIGN_OR_RETURN(const Entry* entry, FindEntry(type));
  return entry->traits;
}

std::vector<StoreTraits> StoreTypes() {
  std::vector<StoreTraits> types;
  for (const Entry& entry : kStores) {
    if (entry.factory != nullptr && !entry.is_alias) {
      types.push_back(entry.traits);
    }
  }
  return types;
}

std::string DescribeKVStores() {
  std::string text;
  for (const Entry& entry : kStores) {
    if (entry.factory == nullptr) continue;
    absl::StrAppendFormat(&text, "%-16s %s\n", entry.traits.type,
                          entry.traits.summary);
  }
  return text;
}

}  // namespace telegrad
