#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/radix.h"

namespace telegrad::kernels::cuda {

RadixKernels Radix() { return {}; }

}  // namespace telegrad::kernels::cuda
