#include "trainer/networks/framework.h"

#include <dlfcn.h>
#include <torch/torch.h>
#include <torch/version.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/resource_limit.h"
#include "base/status_macros.h"
#include "trainer/networks/torch_framework.h"

namespace telegrad {
namespace {

template <typename Function>
Function OfOpenBlas(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
}

std::string Version() { return TORCH_VERSION; }

std::string Blas() {
  const auto name = OfOpenBlas<char* (*)()>("openblas_get_corename");
  return name == nullptr ? "" : absl::StrCat("OpenBLAS, ", name());
}

// OpenBLAS tries for ever where it gets no memory for its buffer: so it takes
// it, with a product that is large enough, where there is room.
absl::Status TakeBlasBuffer() {
  constexpr size_t kBuffer = size_t{192} << 20;
  RETURN_IF_ERROR(CheckAddressSpace(kBuffer, "what multiplies matrices"));
  const at::Tensor factor = torch::ones({256, 256});
  torch::mm(factor, factor);
  return absl::OkStatus();
}

}  // namespace

absl::Status ConfigureFramework(int num_threads, bool allows_tf32) {
  const int threads = std::max(num_threads, 1);
  torch::set_num_threads(threads);
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  at::globalContext().setDeterministicCuDNN(true);
  at::globalContext().setBenchmarkCuDNN(false);
  at::globalContext().setAllowTF32CuBLAS(allows_tf32);
  at::globalContext().setAllowTF32CuDNN(allows_tf32);
  // The framework does not know that its BLAS has threads of its own.
  const auto set = OfOpenBlas<void (*)(int)>("openblas_set_num_threads");
  if (set != nullptr) set(threads);
  static const absl::Status taken = TakeBlasBuffer();
  return taken;
}

extern "C" const Framework telegrad_framework;
const Framework telegrad_framework = {
    .telegrad = TELEGRAD_VERSION,
    .configure = ConfigureFramework,
    .make_network = MakeNetwork,
    .load_gpus = LoadTorchGpus,
    .version = Version,
    .blas = Blas,
};

}  // namespace telegrad
