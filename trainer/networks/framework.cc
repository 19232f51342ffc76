#include <dlfcn.h>
#include <torch/torch.h>
#include <torch/version.h>

#include <algorithm>

#include "trainer/network.h"

namespace telegrad {

void ConfigureFramework(int num_threads, bool allows_tf32) {
  const int threads = std::max(num_threads, 1);
  torch::set_num_threads(threads);
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  at::globalContext().setDeterministicCuDNN(true);
  at::globalContext().setBenchmarkCuDNN(false);
  at::globalContext().setAllowTF32CuBLAS(allows_tf32);
  at::globalContext().setAllowTF32CuDNN(allows_tf32);
  // The framework does not know that its BLAS has threads of its own.
  using SetThreads = void (*)(int);
  void* symbol = dlsym(RTLD_DEFAULT, "openblas_set_num_threads");
  if (symbol != nullptr) reinterpret_cast<SetThreads>(symbol)(threads);
}

std::string FrameworkVersion() { return TORCH_VERSION; }

}  // namespace telegrad
