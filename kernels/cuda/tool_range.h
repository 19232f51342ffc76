#pragma once

namespace telegrad::kernels::cuda {

// A range of this thread, in the domain "telegrad" of NVTX. Thread-safe.
void BeginRange(const char* name);
// The one that began last.
void EndRange();

}  // namespace telegrad::kernels::cuda
