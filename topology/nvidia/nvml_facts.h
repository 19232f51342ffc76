#pragma once

#include "topology/machine.h"
#include "topology/options.h"

namespace telegrad {

// Models, UUIDs, compute capabilities and NVLinks of the GPUs, by NVIDIA's
// management library (libnvidia-ml.so.1), which the driver brings; without it
// nothing changes.
void AddNvmlFacts(const TopologyOptions& options, Machine& machine);

namespace nvidia {

// Gigabytes/s of one NVLink in one direction; 0: unknown. `version` is one of
// nvml.h (NVML_NVLINK_VERSION_1_0 = 1, 2_0 = 2, 2_2 = 3, 3_0 = 4, 3_1 = 5,
// 4_0 = 6, 5_0 = 7), `capability` that of the GPU: some drivers call an H100's
// links, which are 4.0, 7. Source: NVIDIA's data sheets of P100 to B200.
double NvlinkGbytes(int version, int capability);

}  // namespace nvidia

}  // namespace telegrad
