#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kvstore/dist/worker.h"
#include "kvstore/kvstore.h"

namespace telegrad {
namespace {

using Factory = std::unique_ptr<KVStore> (*)(const DistOptions&);

std::unique_ptr<KVStore> MakeDistSync(const DistOptions& options) {
  return std::make_unique<DistWorker>(options);
}

struct Entry {
  const char* type;
  Factory factory;  // null: known from MXNet, not built yet
  const char* summary;
};

constexpr Entry kStores[] = {
    {"dist_sync", MakeDistSync, "servers sum the pushes of all workers"},
    {"dist", MakeDistSync, "dist_sync"},
    {"dist_device_sync", MakeDistSync, "dist_sync; one device per worker"},
    {"dist_sync_device", MakeDistSync, "dist_device_sync"},
    {"local", nullptr, ""},
    {"device", nullptr, ""},
    {"nccl", nullptr, ""},
    {"dist_async", nullptr, ""},
    {"dist_device_async", nullptr, ""},
    {"dist_async_device", nullptr, ""},
    {"p3", nullptr, ""},
    {"horovod", nullptr, ""},
    {"byteps", nullptr, ""},
};

}  // namespace

absl::StatusOr<std::unique_ptr<KVStore>> MakeKVStore(
    absl::string_view type, const DistOptions& options) {
  std::string built;
  for (const Entry& entry : kStores) {
    if (entry.factory != nullptr) {
      absl::StrAppend(&built, built.empty() ? "" : ", ", entry.type);
      if (type == entry.type) return entry.factory(options);
    } else if (type == entry.type) {
      return absl::UnimplementedError(absl::StrCat(
          "kvstore type '", type, "' is not built yet; there are ", built));
    }
  }
  return absl::NotFoundError(
      absl::StrCat("no kvstore type '", type, "'; there are ", built));
}

std::string DescribeKVStores() {
  std::string text;
  for (const Entry& entry : kStores) {
    if (entry.factory == nullptr) continue;
    absl::StrAppendFormat(&text, "%-16s %s\n", entry.type, entry.summary);
  }
  return text;
}

}  // namespace telegrad
