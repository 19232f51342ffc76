#pragma once

#include "kernels/gather.h"

// As those of cuda_kernels.h. C++17.
namespace telegrad::kernels::cuda {

ClearFn Clear;
SampleFn Sample;
GatherManyFn GatherMany;

}  // namespace telegrad::kernels::cuda
