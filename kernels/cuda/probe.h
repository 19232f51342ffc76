#pragma once

#include <string>

#include "kernels/dispatch.h"

namespace telegrad::kernels::cuda {

// The table of this process's GPU of that number, or null with the reason.
// Probes it once, and no other. Thread-safe.
const KernelTable* ProbedKernels(int ordinal, std::string* why_not);

// Whether there is any, by the driver's count. Thread-safe.
bool HasDevice(std::string* why_not);

}  // namespace telegrad::kernels::cuda
