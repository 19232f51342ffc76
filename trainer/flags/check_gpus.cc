#include "trainer/flags/check_gpus.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/dispatch.h"
#include "kvstore/collective/collective.h"
#include "kvstore/kvstore.h"
#include "trainer/networks/gpus.h"

namespace telegrad {
namespace {

// Whether NCCL sums a worker's devices, of which each is another GPU then.
bool SumsByNccl(const TrainOptions& options) {
  const auto traits = FindStoreType(options.kv_store);
  return traits.ok() &&
         (traits->needs_gpus || (traits->has_workers && options.devices > 1));
}

// What networks on GPUs do not do; "" nothing of it is asked for.
std::string NotOnGpus(const TrainOptions& options) {
  if (options.devices == 1) return "";
  if (options.local_steps > 0) return "--local-steps with --devices above 1";
  if (options.gpus != kEmulatedGpu || !SumsByNccl(options)) return "";
  return absl::StrCat("--devices above 1 with --kv-store ", options.kv_store);
}

}  // namespace

absl::Status CheckNumGpus(const TrainOptions& options, size_t num_gpus) {
  if (!SumsByNccl(options) ||
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
  if (!is_emulated) {
    ASSIGN_OR_RETURN(const std::vector<int> named, ParseGpus(options.gpus));
    if (!named.empty()) RETURN_IF_ERROR(CheckNumGpus(options, named.size()));
  }
  if (const std::string what = NotOnGpus(options); !what.empty()) {
    return refuse(what, is_emulated ? " needs GPUs; leave one out"
                                    : " is for the CPU only; leave one out");
  }
  if (is_emulated) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<int> gpus,
                   ChooseGpus(options.gpus, LoadGpus));
  RETURN_IF_ERROR(CheckNumGpus(options, gpus.size()));
  if (SumsByNccl(options)) {
    const absl::Status found = Group::Find({.backend = "nccl"});
    if (!found.ok()) {
      return refuse("--devices ", options.devices, " with --kv-store ",
                    options.kv_store, ": ", found.message());
    }
  }
  for (const int gpu : gpus) {
    std::string why_not;
    if (kernels::CudaKernels(gpu, &why_not) != nullptr) continue;
    return refuse("no kernels for device ", gpu, ": ", why_not);
  }
  return absl::OkStatus();
}

}  // namespace telegrad
