#pragma once

#include <cstddef>
#include <span>

#include "absl/status/status.h"
#include "trainer/run/gradient_exchange.h"

namespace telegrad {

// The optimizer whose arrays tensor `index` has between steps, as `kind` says:
// but with Muon a hidden weight has a momentum, as nag.
OptimizerKind KindOf(const Replica& replica, size_t index, OptimizerKind kind);

// Whether Muon steps this tensor.
bool IsMuons(const Replica& replica, size_t index);

// Room for what steps the weights, on each device. Errors as MakeRoom.
absl::Status MakeRooms(std::span<Replica> replicas, UpdateOn update_on,
                       OptimizerKind kind);

// A step of tensor `index` by its gradient.
void StepTensor(Replica& replica, size_t index, const OptimizerConfig& config,
                const RateMultipliers& own);

}  // namespace telegrad
