#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "base/dtype.h"
#include "kvstore/collective/collective.h"

namespace telegrad::operations {

// The adaptive sum of Maleki et al. 2020 (arXiv:2006.02924): vectors that point
// the same way are averaged, orthogonal ones are added. `data` [count], floats,
// becomes that of all ranks: neighbours are combined, then neighbours of these;
// 16-bit floats in float32, rounded at the end.
//
// A power of two ranks swap halves, quarters and so on, as the paper's
// algorithm 1, and back: twice the bytes of `data` and half of its memory.
// Others gather all.
absl::Status Adasum(Group& group, Dtype type, size_t count, void* data);

}  // namespace telegrad::operations
