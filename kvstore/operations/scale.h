#pragma once

#include <cstddef>
#include <span>

#include "base/dtype.h"

namespace telegrad::operations {

// data[i] = data[i] * factor, in float32 for 16-bit floats, in double and cut
// to a whole number for integers. Not of bools.
void Scale(Dtype type, double factor, size_t count, void* data);

// The adaptive sum of Maleki et al. 2020 (arXiv:2006.02924): vectors that point
// the same way are averaged, orthogonal ones are added. `rows`
// [num_rows * count], floats, one of each rank; neighbours are combined, then
// neighbours of these, into the first row.
void Adasum(Dtype type, size_t num_rows, size_t count, void* rows);

}  // namespace telegrad::operations
