#include "kernels/radix.h"

#include "kernels/reference.h"

namespace telegrad::kernels::reference {

RadixKernels Radix() { return {}; }

}  // namespace telegrad::kernels::reference
