#pragma once

namespace telegrad {

// Where work on a device is queued: a cudaStream_t on a GPU; null on a CPU,
// where work has finished when its call returns.
struct Stream {
  void* handle = nullptr;
};

}  // namespace telegrad
