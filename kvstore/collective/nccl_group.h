#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "kvstore/collective/collective.h"

namespace telegrad::collective {

// The group for GroupOptions::backend "nccl".
absl::StatusOr<std::unique_ptr<Group>> MakeNcclGroup(
    const GroupOptions& options, const AddressExchange& exchange);

// Whether it can be loaded, as LoadNccl says; no device is touched.
absl::Status FindNccl(const GroupOptions& options);

}  // namespace telegrad::collective
