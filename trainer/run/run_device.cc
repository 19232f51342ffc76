#include "trainer/run/run_device.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/device_access.h"
#include "base/status_macros.h"
#include "trainer/networks/framework.h"
#include "trainer/networks/gpus.h"
#include "trainer/run/device_room.h"

namespace telegrad {

absl::StatusOr<Device> ChooseDevice(RunContext& context, int index) {
  const TrainOptions& options = context.options;
  if (options.gpus.empty()) return Device{};
  if (options.gpus == kEmulatedGpu) {
    context.gpus.push_back(kEmulatedDevice);
    return kEmulatedDevice;
  }
  ASSIGN_OR_RETURN(const std::vector<int> gpus,
                   ChooseGpus(options.gpus, LoadGpus));
  const std::string shared =
      SharingNotice(gpus.size(), options.workers * options.devices);
  if (!shared.empty() && index == 0) context.Warn(shared);
  const int local = options.local_rank.value_or(context.store.group().rank());
  context.gpus.push_back(
      {DeviceKind::kCuda, DealGpu(gpus, local * options.devices + index)});
  return context.gpus.back();
}

absl::Status AgreeOnProducts(RunContext& context) {
  ASSIGN_OR_RETURN(const Framework* framework, LoadFramework());
  std::string gpus;
  for (const Device device : context.gpus) {
    absl::StrAppend(&gpus, " ", KernelsOf(device).name);
  }
  return AgreeOnFacts(context.store.group(), "products",
                      {{"libtorch", framework->version()},
                       {"BLAS", framework->blas()},
                       {"GPUs", gpus}});
}

}  // namespace telegrad
