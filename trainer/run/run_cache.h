#pragma once

#include "kvstore/tuning/calibration_cache.h"
#include "trainer/run/worker_run.h"

namespace telegrad {

// Where a run keeps what it measures; nowhere for a machine that is not known.
CalibrationCache::Options CacheOptionsOf(const RunContext& context);

}  // namespace telegrad
