#pragma once

#include "kernels/gather.h"

namespace telegrad::kernels::reference {

ClearFn Clear;
SampleFn Sample;
GatherManyFn GatherMany;

}  // namespace telegrad::kernels::reference
