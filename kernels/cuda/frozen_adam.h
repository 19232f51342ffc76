#pragma once

#include "kernels/frozen_adam.h"

// As those of cuda_kernels.h. C++17.
namespace telegrad::kernels::cuda {

ToMeanFn ToMean;
StepByMeanFn StepByMean;

}  // namespace telegrad::kernels::cuda
