#pragma once

#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "kvstore/collective/collective.h"
#include "kvstore/collective/mesh.h"

namespace telegrad::collective {

// Group::Split of the group that `mesh` is of, over which addresses travel.
absl::StatusOr<std::unique_ptr<Group>> Split(Mesh& mesh,
                                             std::span<const int> ranks);

}  // namespace telegrad::collective
