#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace telegrad {

// --gpus that means no GPU, but the emulated device (base/device_access.h).
inline constexpr char kEmulatedGpu[] = "emulated";

// --gpus: "0,1" are these, "all" is an empty list. InvalidArgument for what is
// no number, and for a device that comes twice.
absl::StatusOr<std::vector<int>> ParseGpus(absl::string_view text);

// The devices of this host that are meant. `count`: how many there are, or why
// none can be used. InvalidArgument (exit code 2) for that, and for one that is
// not there.
absl::StatusOr<std::vector<int>> ChooseGpus(
    absl::string_view text, const std::function<absl::StatusOr<int>()>& count);

// The device of a worker: they are dealt over `gpus` by their number on this
// host, and share them where there are more workers.
int DealGpu(const std::vector<int>& gpus, int local_rank);

// "4 workers share 2 GPUs", and what that means; "" where each has its own.
std::string SharingNotice(size_t num_gpus, int num_workers);

// Loads the framework's part for GPUs, which programs start without, and counts
// the devices: at least 1. Unimplemented where this build's framework is for
// the CPU only; FailedPrecondition with the loader's or the driver's reason.
absl::StatusOr<int> LoadGpus();

}  // namespace telegrad
