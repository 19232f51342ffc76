#pragma once

#include <cstddef>

#include "transport/collective.h"

namespace telegrad::collective {

// sum[i] = sum[i] op x[i] for `count` elements. Alias: no.
void Reduce(DataType type, ReduceOp op, const void* x, size_t count, void* sum);

}  // namespace telegrad::collective
