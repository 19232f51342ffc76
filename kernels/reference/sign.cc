#include "kernels/sign.h"

#include "kernels/reference.h"

namespace telegrad::kernels::reference {

SignKernels Sign() { return {}; }

}  // namespace telegrad::kernels::reference
