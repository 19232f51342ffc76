#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace telegrad {

// ExchangeOverPmix with libpmix; registry.cc chooses it.
absl::StatusOr<std::string> PmixExchange(int rank, const std::string& mine,
                                         int timeout_s);

}  // namespace telegrad
