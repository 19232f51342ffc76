#pragma once

#include <cuda_runtime_api.h>

#include "tests/simt/engine.h"

// What CUDA keeps for each thread of the host, the driver's calls for contexts,
// and captures of streams, of which the work is left out.
namespace telegrad::simt {

inline constexpr int kDevices = 2;

// Of the thread's context, else the one that it has chosen, or the first.
int CurrentDevice();
// As cudaSetDevice does.
void ChooseDevice(int device);
// As most calls do on a thread that has none.
void MakeContext();

// Whether a call that may wait, or begin something, is allowed beside the
// captures of this and other threads. Where it is not it ends them.
bool IsSafe();
bool IsCapturing(const StreamState* stream);
// `stream` waits for an event of a stream that is captured.
void JoinCapture(const StreamState* stream);

}  // namespace telegrad::simt
