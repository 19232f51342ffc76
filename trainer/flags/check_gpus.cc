#include "trainer/flags/check_gpus.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/dispatch.h"
#include "kvstore/kvstore.h"
#include "trainer/networks/gpus.h"

namespace telegrad {
namespace {

// What networks on GPUs do not do yet; "" nothing of it is asked for.
std::string NotOnGpus(const TrainOptions& options) {
  if (options.devices == 1) return "";
  if (options.local_steps > 0) return "--local-steps with --devices above 1";
  const auto traits = FindStoreType(options.kv_store);
  if (!traits.ok() || !traits->has_workers) return "";
  return absl::StrCat("--devices above 1 with --kv-store ", options.kv_store);
}

}  // namespace

absl::Status CheckNumGpus(const TrainOptions& options, size_t num_gpus) {
  const auto traits = FindStoreType(options.kv_store);
  if (!traits.ok() || !traits->needs_gpus ||
      static_cast<size_t>(options.devices) <= num_gpus) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--kv-store ", options.kv_store, " has a GPU for each of --devices ",
      options.devices, "; --gpus ", options.gpus, " has ", num_gpus));
}

absl::Status CheckGpus(const TrainOptions& options) {
  if (!options.given.contains("--gpus")) return absl::OkStatus();
  const auto refuse = [&](const auto&... why) {
    return absl::InvalidArgumentError(
        absl::StrCat("--gpus ", options.gpus, ": ", why...));
  };
  const bool is_emulated = options.gpus == kEmulatedGpu;
  if (!is_emulated) RETURN_IF_ERROR(ParseGpus(options.gpus).status());
  if (const std::string what = NotOnGpus(options); !what.empty()) {
    return refuse(what, " is for the CPU only in this version; leave one out");
  }
  if (is_emulated) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<int> gpus,
                   ChooseGpus(options.gpus, LoadGpus));
  RETURN_IF_ERROR(CheckNumGpus(options, gpus.size()));
  for (const int gpu : gpus) {
    std::string why_not;
    if (kernels::CudaKernels(gpu, &why_not) != nullptr) continue;
    return refuse("no kernels for device ", gpu, ": ", why_not);
  }
  return absl::OkStatus();
}

}  // namespace telegrad
