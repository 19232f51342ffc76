#include "kernels/sparse.h"

#include "kernels/reference.h"

namespace telegrad::kernels::reference {

SparseKernels Sparse() { return {}; }

}  // namespace telegrad::kernels::reference
