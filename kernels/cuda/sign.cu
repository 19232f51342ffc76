#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/sign.h"

namespace telegrad::kernels::cuda {

SignKernels Sign() { return {}; }

}  // namespace telegrad::kernels::cuda
