#pragma once

#include "kernels/dispatch.h"

namespace telegrad::kernels {

// For tests of what is made of kernels: while this lives, CpuKernels() gives
// this one of AllCpuKernels(). A codec keeps the table that it was prepared
// with.
class UsedCpuKernels {
 public:
  explicit UsedCpuKernels(const KernelTable* table);
  ~UsedCpuKernels();
  UsedCpuKernels(const UsedCpuKernels&) = delete;
  UsedCpuKernels& operator=(const UsedCpuKernels&) = delete;
};

}  // namespace telegrad::kernels
