#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "trainer/network.h"
#include "trainer/networks/model.h"

namespace telegrad {

// Gives `model` its state: weights and gradients each in one flat buffer, and
// the initial weights of `seed`. Internal when the framework throws.
absl::StatusOr<std::unique_ptr<Network>> MakeTorchNetwork(
    const NetworkSpec& spec, Model model);

}  // namespace telegrad
