#include "kernels/cast.h"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/launch.h"

namespace telegrad::kernels::cuda {

CastKernels Cast() { return {}; }

}  // namespace telegrad::kernels::cuda
