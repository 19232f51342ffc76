#include "trainer/gpus.h"

namespace telegrad {

absl::StatusOr<int> LoadGpus() {
  return absl::UnimplementedError(
      "the libtorch of this build is for the CPU only; PyTorch's wheel has "
      "CUDA (docs/gpu.md)");
}

}  // namespace telegrad
