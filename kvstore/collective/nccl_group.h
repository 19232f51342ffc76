#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "kvstore/collective/collective.h"

namespace telegrad::collective {

// The group for GroupOptions::backend "nccl".
absl::StatusOr<std::unique_ptr<Group>> MakeNcclGroup(
    const GroupOptions& options, const AddressExchange& exchange);

}  // namespace telegrad::collective
