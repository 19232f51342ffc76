#pragma once

#include <string>

#include "kernels/dispatch.h"

namespace telegrad::kernels::cuda {

// The table for this process's GPUs, named after device 0, or null with the
// reason. Probes once. Thread-safe.
const KernelTable* ProbedKernels(std::string* why_not);

}  // namespace telegrad::kernels::cuda
