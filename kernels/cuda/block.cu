#include "kernels/block.h"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/launch.h"

namespace telegrad::kernels::cuda {

BlockKernels Block() { return {}; }

}  // namespace telegrad::kernels::cuda
