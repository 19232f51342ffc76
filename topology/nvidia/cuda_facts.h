#pragma once

#include "topology/machine.h"
#include "topology/options.h"

namespace telegrad {

// Whether each GPU exports its memory as dmabuf, and by that gdr_dmabuf_gpu, by
// CUDA's driver (libcuda.so.1). With `options.probe` alone: to start the driver
// takes a while. Without one nothing changes.
void AddCudaFacts(const TopologyOptions& options, Machine& machine);

}  // namespace telegrad
