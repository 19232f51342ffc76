#pragma once

#include <span>

#include "trainer/gradient_exchange.h"

namespace telegrad {

// A device's gradient of tensor `index` is the mean over its own samples; what
// is summed shall count all samples alike. `batch_size`: of an equal share.
void WeighGradient(const Replica& replica, size_t index, int batch_size);

// Each device's gradient as a whole, to a norm of at most `most`; one that is
// not finite stays as it is.
void ClipGradients(std::span<const Replica> replicas, float most);

}  // namespace telegrad
