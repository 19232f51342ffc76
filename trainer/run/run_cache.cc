#include "trainer/run/run_cache.h"

#include "topology/system_root.h"

namespace telegrad {

CalibrationCache::Options CacheOptionsOf(const RunContext& context) {
  const absl::StatusOr<Machine>& machine = context.detection.Get().machine;
  if (!machine.ok()) return {};
  return {.folder = context.options.cache_folder,
          .identity = CalibrationIdentity(*machine, CpuModel(SysRoot::Live()),
                                          TELEGRAD_VERSION),
          .recalibrate = context.options.recalibrate,
          .before = context.started};
}

}  // namespace telegrad
