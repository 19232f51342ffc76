#pragma once

#include <cstddef>

#include "base/bytes.h"
#include "base/device_access.h"
#include "kvstore/engine/buffer_pool.h"
#include "kvstore/options.h"

namespace telegrad {

// What all chunks of a store have in common; outlives them.
struct EngineConfig {
  CompressionConfig compression = {};
  OptimizerConfig optimizer = {};
  int num_contributors = 1;  // payloads of a round
  Device device = {};        // of gradients, outputs and residuals
  // Payloads are read by others than kernels and copies: for a wire.
  bool has_host_payloads = false;
  // Scratch memory for a chunk, alike for all so that threads share it.
  size_t scratch_bytes = 0;
  BufferPool* buffers = nullptr;
};

// Zero-filled, for what the device's kernels keep.
inline Buffer MakeDeviceBuffer(size_t size, Device device) {
  return device == kEmulatedDevice ? MakeEmulatedBuffer(size) : Buffer(size);
}

}  // namespace telegrad
