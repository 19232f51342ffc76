#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "kvstore/calibration_cache.h"
#include "kvstore/kvstore.h"
#include "topology/calibration.h"

namespace telegrad {

struct LinkCalibration {
  LinkFigures figures = {};  // named "link"
  bool is_cached = false;    // measured by an earlier job of the same members
  double seconds = 0;        // that it took now
};

// What KVStore::MeasureLink said, now or, if all workers have kept the same for
// this identity of the store, before; it is kept then. All workers call it at
// the same time, after Init, between rounds, and get the same figures. `cache`
// may be null or without a folder on any of them. Errors are the store's.
absl::StatusOr<LinkCalibration> CalibrateLink(KVStore& store,
                                              CalibrationCache* cache,
                                              Duration at_most);

// "0.94 Gb/s out, 0.94 Gb/s in, 105 us one way; measured in 0.14 s", or
// "...; from the cache".
std::string Describe(const LinkCalibration& link);

}  // namespace telegrad
