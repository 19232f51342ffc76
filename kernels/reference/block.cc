#include "kernels/block.h"

#include "kernels/reference.h"

namespace telegrad::kernels::reference {

BlockKernels Block() { return {}; }

}  // namespace telegrad::kernels::reference
