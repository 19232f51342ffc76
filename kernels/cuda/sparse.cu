#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/sparse.h"

namespace telegrad::kernels::cuda {

SparseKernels Sparse() { return {}; }

}  // namespace telegrad::kernels::cuda
