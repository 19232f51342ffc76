#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "tests/simt/observe.h"

// What the runtime's calls tell observe.h, and ask it.
namespace telegrad::simt {

void CountWait();
void CountFlush();
void CountAllocation(bool is_pooled);
void CountCopied(uint64_t to_device, uint64_t to_host);
// Counts a launch. Its error, if it is to fail.
cudaError_t BeginLaunch();
bool IsPinnedToFail();
void NoteContext(int device);
// What every call fails with, or cudaSuccess.
cudaError_t LastingError();

}  // namespace telegrad::simt
