#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

// What tests ask of the emulated devices, and what they make go wrong.
// Thread-safe.
namespace telegrad::simt {

// Calls of all threads since the process began.
struct Counters {
  uint64_t waits = 0;  // that may keep the host until the device is done
  uint64_t launches = 0;
  uint64_t loads = 0;  // of kernels, by their first launch
  // Of a device's memory and of pinned memory; those that wait for nothing.
  uint64_t allocations = 0;
  uint64_t pool_allocations = 0;
  uint64_t bytes_to_device = 0;
  uint64_t bytes_to_host = 0;
  uint64_t copies_to_host = 0;
  uint64_t flushes = 0;  // of what network cards have written

  Counters operator-(const Counters& before) const;
};
Counters Counted();

// The order in which streams get on from now on: at random by `seed`, as late
// as waits allow. 0: all work is done when its call returns. At first it is
// TELEGRAD_SIMT_SEED, or 1.
void SetOrder(uint64_t seed);

// While it is held, nothing of the stream runs; when it is let go, all does
// that waits for no other.
void Hold(cudaStream_t stream, bool is_held);
// While they are held, no kernel runs.
void HoldKernels(bool are_held);
// Runs all that waits for nothing else; then returns.
void RunAll();

// The launch after `others` more fails with `error` and is not done. If
// `for_ever`, so does every call after it, as when a device has met a fault.
void FailLaunch(unsigned others, cudaError_t error, bool for_ever);
// The same at once, without a launch.
void BreakDevice(cudaError_t error);
void FailNoMore();

// From now on the host's memory cannot be registered, or can.
void FailPinned(bool fails);

// Whether the process has work or memory on the device: on a GPU that takes
// some hundred megabytes.
bool HasContext(int device);

}  // namespace telegrad::simt
