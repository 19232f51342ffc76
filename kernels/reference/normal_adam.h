#pragma once

#include "kernels/normal_adam.h"

namespace telegrad::kernels::reference {

ToNormalFn ToNormal;
StepByNormalFn StepByNormal;

}  // namespace telegrad::kernels::reference
