// Usage: gpu_check [--verify-only] [--json PATH]
// Exit: 0 all equal, 1 a difference or an error, 2 usage, 77 no device.
#include <cstring>

#include "perf/gpu_check/gpu_check.h"

int main(int argc, char** argv) {
  const char* path = nullptr;
  bool is_verify_only = false;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--verify-only") == 0) {
      is_verify_only = true;
    } else if (std::strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
      path = argv[++i];
    } else {
      std::printf("usage: gpu_check [--verify-only] [--json PATH]\n");
      return 2;
    }
  }
  int num_devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&num_devices);
  if (error != cudaSuccess || num_devices == 0) {
    std::printf("no CUDA device: %s\n", cudaGetErrorString(error));
    return 77;
  }
  cudaDeviceProp properties;
  telegrad::gpu_check::Require(cudaGetDeviceProperties(&properties, 0),
                               "cudaGetDeviceProperties");
  std::printf("%s, compute capability %d.%d\n", properties.name,
              properties.major, properties.minor);
  if (!telegrad::gpu_check::Verify()) return 1;
  if (!is_verify_only) telegrad::gpu_check::MeasureAll(properties.name, path);
  return 0;
}
