#pragma once

#include "kernels/gather.h"

namespace telegrad::kernels::reference {

ClearFn Clear;
SampleFn Sample;

}  // namespace telegrad::kernels::reference
