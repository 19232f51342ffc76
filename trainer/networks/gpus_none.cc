#include "trainer/networks/torch_framework.h"

namespace telegrad {

absl::StatusOr<int> LoadTorchGpus() {
  return absl::UnimplementedError(
      "the libtorch of this build is for the CPU only; PyTorch's wheel has "
      "CUDA (docs/gpu.md)");
}

}  // namespace telegrad
