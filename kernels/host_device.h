#pragma once

// For functions that CUDA compiles for both sides.
#ifdef __CUDACC__
#define TELEGRAD_HOST_DEVICE __host__ __device__
#else
#define TELEGRAD_HOST_DEVICE
#endif
