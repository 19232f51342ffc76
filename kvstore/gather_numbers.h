#pragma once

#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kvstore/kvstore.h"

namespace telegrad {

// All workers meet; each gets everybody's numbers by rank, as many as it gives
// and rounded to nine digits, its own as well. They must be finite and not
// negative. Errors are the store's, or InvalidArgument for what a worker sent.
absl::StatusOr<std::vector<std::vector<double>>> GatherNumbers(
    KVStore& store, absl::string_view name, std::span<const double> mine);

}  // namespace telegrad
