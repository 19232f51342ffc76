#pragma once

#include <infiniband/verbs.h>

#include "topology/machine.h"

namespace telegrad::verbs {

// Registers 64 KiB of the first GPU's memory with the device, through peer
// memory and then through dmabuf: the proof of GPUDirect RDMA. Adds its verdict
// to capabilities.gdr_probe: one device that can makes it yes. Without CUDA's
// driver or a GPU it stays unknown.
void ProbeGpuMemory(ibv_pd* domain, const std::string& device,
                    Capabilities& capabilities);

}  // namespace telegrad::verbs
