#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"
#include "trainer/networks/framework.h"
#include "trainer/networks/gpus.h"

namespace telegrad {
namespace {

constexpr char kLibrary[] = "libtelegrad-networks.so";

// Beside the program, as in a build, or where it was installed.
absl::StatusOr<const Framework*> Open() {
  std::error_code error;
  const std::filesystem::path program =
      std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  std::filesystem::path path = program / kLibrary;
  for (const char* folder : {"../lib", "../" TELEGRAD_LIBRARY_FOLDER}) {
    if (std::filesystem::exists(path, error)) break;
    path = (program / folder / kLibrary).lexically_normal();
  }
  // Lazily: libtorch would look up ten times as many functions as it calls.
  void* library = dlopen(path.c_str(), RTLD_LAZY | RTLD_GLOBAL);
  const auto* framework = static_cast<const Framework*>(
      library == nullptr ? nullptr : dlsym(library, "telegrad_framework"));
  if (framework == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("what computes networks cannot be loaded: ", dlerror()));
  }
  if (absl::string_view(framework->telegrad) != TELEGRAD_VERSION) {
    return absl::FailedPreconditionError(
        absl::StrCat(path.string(), " belongs to version ", framework->telegrad,
                     ", and this is ", TELEGRAD_VERSION));
  }
  return framework;
}

const Framework* loaded = nullptr;

}  // namespace

// OpenBLAS takes kernels of 2004 (Prescott) for a processor that is younger
// than itself, which multiply matrices at a fifth of the speed. What the
// processor can do decides instead, unless the user does.
void ChooseBlasKernels() {
#ifdef __x86_64__
  const char* kernels = nullptr;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    kernels = "Haswell";
  }
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    kernels = "SkylakeX";
  }
  if (kernels != nullptr) setenv("OPENBLAS_CORETYPE", kernels, 0);
#endif
  // It starts its threads when it is loaded; Framework::configure may add some.
  setenv("OPENBLAS_NUM_THREADS", "1", 0);
}

absl::StatusOr<const Framework*> LoadFramework() {
  static const absl::StatusOr<const Framework*> opened = Open();
  if (opened.ok()) loaded = *opened;
  return opened;
}

const Framework* LoadedFramework() { return loaded; }

absl::StatusOr<int> LoadGpus() {
  ASSIGN_OR_RETURN(const Framework* framework, LoadFramework());
  return framework->load_gpus();
}

}  // namespace telegrad
