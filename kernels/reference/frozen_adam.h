#pragma once

#include "kernels/frozen_adam.h"

namespace telegrad::kernels::reference {

ToMeanFn ToMean;
StepByMeanFn StepByMean;

}  // namespace telegrad::kernels::reference
