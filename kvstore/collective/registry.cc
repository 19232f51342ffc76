#include <array>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kvstore/collective/collective.h"
#include "kvstore/collective/dense_group.h"
#if TELEGRAD_WITH_NCCL
#include "kvstore/collective/nccl_group.h"
#endif

namespace telegrad {
namespace {

using Factory = absl::StatusOr<std::unique_ptr<Group>> (*)(
    const GroupOptions&, const AddressExchange&);

absl::StatusOr<std::unique_ptr<Group>> MakeDenseGroup(
    const GroupOptions& options, const AddressExchange& exchange) {
  ASSIGN_OR_RETURN(std::unique_ptr<collective::Mesh> mesh,
                   collective::Mesh::Make(options, exchange));
  return std::make_unique<collective::DenseGroup>(std::move(mesh));
}

struct Entry {
  const char* name;
  const char* description;  // or why it is not there
  Factory make;             // null: not in this build
};

constexpr std::array kBackends = {
    Entry{"host", "host memory, over any transport", &MakeDenseGroup},
#if TELEGRAD_WITH_NCCL
    Entry{"nccl", "memory of GPUs, by NCCL", &collective::MakeNcclGroup},
#else
    Entry{"nccl", "not in this build; it needs the CUDA Toolkit and nccl.h",
          nullptr},
#endif
};

}  // namespace

absl::Status Group::AllreduceAll(std::span<const Part> parts, Dtype type,
                                 ReduceOp op, CollectiveSettings settings) {
  for (const Part& part : parts) {
    const absl::Status status =
        Allreduce(part.data, part.count, type, op, settings);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Group>> Group::Make(
    const GroupOptions& options, const AddressExchange& exchange) {
  std::string all;
  for (const Entry& entry : kBackends) {
    if (options.backend == entry.name && entry.make != nullptr) {
      return entry.make(options, exchange);
    }
    absl::StrAppend(&all, all.empty() ? "" : "; ", entry.name, ": ",
                    entry.description);
  }
  return absl::NotFoundError(
      absl::StrCat("no groups by \"", options.backend, "\": ", all));
}

}  // namespace telegrad
