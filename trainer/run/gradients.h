#pragma once

#include <cstddef>

#include "trainer/run/gradient_exchange.h"

namespace telegrad {

// A device's gradient of tensor `index` is the mean over its own samples; what
// is summed shall count all samples alike. `batch_size`: of an equal share.
void WeighGradient(const Replica& replica, size_t index, int batch_size);

}  // namespace telegrad
