#pragma once

#include <cstddef>
#include <vector>

#include "base/dtype.h"

namespace telegrad::operations {

// data[i] = data[i] * factor, in float32 for 16-bit floats, in double and cut
// to a whole number for integers. Not of bools.
void Scale(Dtype type, double factor, size_t count, void* data);

// 16-bit floats as float32 and back.
std::vector<float> Widen(Dtype type, const void* from, size_t count);
void Narrow(Dtype type, const std::vector<float>& wide, void* to);

}  // namespace telegrad::operations
