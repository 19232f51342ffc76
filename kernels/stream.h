#pragma once

namespace telegrad::kernels {

// Where a kernel is queued: a cudaStream_t on a GPU; ignored on a CPU, where a
// kernel has finished when it returns. This header and all that it meets in
// .cu files are C++17 and free of Abseil.
struct Stream {
  void* handle = nullptr;
};

}  // namespace telegrad::kernels
