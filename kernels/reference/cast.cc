#include "kernels/cast.h"

#include "kernels/reference.h"

namespace telegrad::kernels::reference {

CastKernels Cast() { return {}; }

}  // namespace telegrad::kernels::reference
