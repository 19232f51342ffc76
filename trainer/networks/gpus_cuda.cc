#include <c10/cuda/CUDAFunctions.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "trainer/networks/torch_framework.h"

namespace telegrad {

absl::StatusOr<int> LoadTorchGpus() {
  // Without it cuBLAS is not deterministic, and the framework refuses it.
  setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  // Its constructors make the framework know of CUDA, and kernels that other
  // libraries load look for its symbols: it stays, for all.
  if (dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("PyTorch's part for GPUs cannot be loaded: ", dlerror()));
  }
  try {
    return static_cast<int>(c10::cuda::device_count_ensure_non_zero());
  } catch (const c10::Error& error) {
    return absl::FailedPreconditionError(error.what_without_backtrace());
  }
}

}  // namespace telegrad
