#pragma once

#include <cstddef>

#include "kvstore/engine/device/buffer_pool.h"
#include "kvstore/engine/device/device_lane.h"
#include "kvstore/options.h"

namespace telegrad {

// What network cards do with a device's memory by themselves (GPUDirect RDMA);
// else all goes by way of pinned host memory.
struct CardAccess {
  bool sends = false;     // codes, from where they were encoded
  bool receives = false;  // answers, to where they are decoded
};

// What all chunks of a store have in common; outlives them.
struct EngineConfig {
  CompressionConfig compression = {};
  OptimizerConfig optimizer = {};
  int num_contributors = 1;  // payloads of a round
  // The device on which gradients, outputs and residuals lie; null: the host.
  // Sums are on the host.
  DeviceLane* lane = nullptr;
  CardAccess cards = {};  // with it
  // Scratch memory for a chunk, alike for all so that threads share it.
  size_t scratch_bytes = 0;
  BufferPool* buffers = nullptr;  // the host's; the lane's own, if there is one

  Device codec_device() const {
    return lane == nullptr ? Device{} : lane->codec_device();
  }
};

}  // namespace telegrad
