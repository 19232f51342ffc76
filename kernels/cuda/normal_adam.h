#pragma once

#include "kernels/normal_adam.h"

// As those of cuda_kernels.h. C++17.
namespace telegrad::kernels::cuda {

ToNormalFn ToNormal;
StepByNormalFn StepByNormal;

}  // namespace telegrad::kernels::cuda
