#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "kvstore/options.h"

namespace telegrad {

// Chooses the device on which each tensor is summed: the largest tensor first,
// each where the fewest elements are so far, and of equal devices on the first.
// `loads` are elements by device, before and after.
std::vector<size_t> DealOut(std::span<const TensorSpec> tensors,
                            std::span<size_t> loads);

}  // namespace telegrad
