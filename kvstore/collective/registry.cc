#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

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
  std::unique_ptr<collective::Courier> courier;
  if (!options.sends) {
    ASSIGN_OR_RETURN(std::unique_ptr<collective::Mesh> mesh,
                     collective::Mesh::Make(options, exchange));
    return std::make_unique<collective::DenseGroup>(std::move(mesh), nullptr);
  }
  ASSIGN_OR_RETURN(courier, collective::Courier::Make(options));
  std::vector<std::string> addresses;
  // The courier's address is the last line of what a rank says.
  ASSIGN_OR_RETURN(
      std::unique_ptr<collective::Mesh> mesh,
      collective::Mesh::Make(
          options,
          [&](const std::string& mine,
              TimePoint deadline) -> absl::StatusOr<std::vector<std::string>> {
            ASSIGN_OR_RETURN(
                std::vector<std::string> texts,
                exchange(absl::StrCat(mine, "\n", courier->address()),
                         deadline));
            for (std::string& text : texts) {
              const size_t end = std::min(text.rfind('\n'), text.size());
              addresses.push_back(text.substr(std::min(end + 1, text.size())));
              text.resize(end);
            }
            return texts;
          }));
  courier->Start(std::move(addresses));
  return std::make_unique<collective::DenseGroup>(std::move(mesh),
                                                  std::move(courier));
}

absl::Status IsThere(const GroupOptions& /*options*/) {
  return absl::OkStatus();
}

struct Entry {
  const char* name;
  const char* description;  // or why it is not there
  Factory make;             // null: not in this build
  absl::Status (*find)(const GroupOptions& options);
  bool is_sealed;  // what it sends, as TransportOptions::encryption asks
};

constexpr std::array kBackends = {
    Entry{"host", "host memory, over any transport", &MakeDenseGroup, &IsThere,
          true},
#if TELEGRAD_WITH_NCCL
    Entry{"nccl", "memory of GPUs, by NCCL", &collective::MakeNcclGroup,
          &collective::FindNccl, false},
#else
    Entry{"nccl", "not in this build; it needs the CUDA Toolkit and nccl.h",
          nullptr, nullptr, false},
#endif
};

absl::Status CheckSealed(const Entry& entry, Encryption encryption) {
  const bool is_demanded =
      encryption == Encryption::kAuth || encryption == Encryption::kOn;
  if (entry.is_sealed || !is_demanded) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "groups by \"", entry.name, "\" with encryption ", Name(encryption),
      ": its own connections cannot be sealed; those of \"host\" can, over any "
      "transport; on an isolated fabric take encryption auto"));
}

absl::StatusOr<const Entry*> FindEntry(const GroupOptions& options) {
  std::string all;
  for (const Entry& entry : kBackends) {
    if (options.backend == entry.name) {
      RETURN_IF_ERROR(CheckSealed(entry, options.transport.encryption));
      if (entry.make != nullptr) return &entry;
    }
    absl::StrAppend(&all, all.empty() ? "" : "; ", entry.name, ": ",
                    entry.description);
  }
  return absl::NotFoundError(
      absl::StrCat("no groups by \"", options.backend, "\": ", all));
}

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
  ASSIGN_OR_RETURN(const Entry* entry, FindEntry(options));
  return entry->make(options, exchange);
}

absl::Status Group::Find(const GroupOptions& options) {
  ASSIGN_OR_RETURN(const Entry* entry, FindEntry(options));
  return entry->find(options);
}

}  // namespace telegrad
