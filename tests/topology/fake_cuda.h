#pragma once

// What libcuda.so.1 of the tests says of its two GPUs, 0000:01:00.0 and
// 0000:02:00.0.
struct FakeCuda {
  int init_error = 0;
  int dmabuf[2] = {1, 1};
  int num_starts = 0;
};
FakeCuda& TheFakeCuda();
