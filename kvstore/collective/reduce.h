#pragma once

#include <cstddef>

#include "kvstore/collective/collective.h"

namespace telegrad::collective {

// sum[i] = sum[i] op x[i] for `count` elements. Alias: no.
void Reduce(Dtype type, ReduceOp op, const void* x, size_t count, void* sum);

}  // namespace telegrad::collective
