// Measures the CUDA kernels of one GPU; tests/kernels verifies them.
// Usage: gpu_check [--json PATH] [--elements N] [--runs N]
// --elements: of the arrays, 1048576 or more; by default 268435456. --runs: of
// each kernel that count, by default 50; a tenth as many go before them.
// Exit: 0 measured, 1 an error, 2 usage, 77 no device.
#include <cstdlib>
#include <cstring>

#include "perf/gpu_check/bench.h"
#include "perf/gpu_check/gpu_check.h"

namespace telegrad::gpu_check {
namespace {

// A decimal number of at least `least`, or 0.
size_t Number(const char* text, size_t least) {
  char* end = nullptr;
  const unsigned long long number = std::strtoull(text, &end, 10);
  return *end == '\0' && number >= least && number < size_t{1} << 31 ? number
                                                                     : 0;
}

bool Parse(int argc, char** argv, const char** path) {
  for (int i = 1; i < argc; i += 2) {
    if (i + 1 == argc) return false;
    if (std::strcmp(argv[i], "--json") == 0) {
      *path = argv[i + 1];
    } else if (std::strcmp(argv[i], "--elements") == 0) {
      num_elements = Number(argv[i + 1], size_t{1} << 20);
    } else if (std::strcmp(argv[i], "--runs") == 0) {
      num_runs = static_cast<int>(Number(argv[i + 1], 1));
    } else {
      return false;
    }
  }
  return num_elements != 0 && num_runs != 0;
}

int Main(int argc, char** argv) {
  const char* path = nullptr;
  if (!Parse(argc, argv, &path)) {
    std::printf("usage: gpu_check [--json PATH] [--elements N] [--runs N]\n");
    return 2;
  }
  int num_devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&num_devices);
  if (error != cudaSuccess || num_devices == 0) {
    std::printf("no CUDA device: %s\n", cudaGetErrorString(error));
    return 77;
  }
  cudaDeviceProp properties;
  Require(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  std::printf("%s, compute capability %d.%d\n", properties.name,
              properties.major, properties.minor);
  MeasureAll(properties.name, path);
  return 0;
}

}  // namespace
}  // namespace telegrad::gpu_check

int main(int argc, char** argv) {
  return telegrad::gpu_check::Main(argc, argv);
}
