#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "kvstore/kvstore.h"
#include "kvstore/tuning/calibration_cache.h"
#include "topology/calibration.h"

namespace telegrad {

struct LinkCalibration {
  LinkFigures figures = {};  // named "link"
  bool is_cached = false;    // measured by an earlier job of the same members
  std::string was = {};      // what that had measured, where it holds no longer
  double seconds = 0;        // seconds that it took now
};

struct LinkTimes {
  Duration measure = std::chrono::milliseconds(150);
  // How long the look takes that tells whether what was kept still holds; 0:
  // none is taken.
  Duration check = std::chrono::milliseconds(30);
};

// What StoreLink::Measure said, now or, if all workers have kept the same for
// this identity of the store, before; it is kept then. Kept figures must stand
// a look: rates that are half as much again, or two thirds, are measured anew
// (a job beside others keeps too little). All workers call it at the same time,
// after Init, between rounds, and get the same figures. `cache` may be null or
// without a folder on any of them. Errors are the store's.
absl::StatusOr<LinkCalibration> CalibrateLink(KVStore& store,
                                              CalibrationCache* cache,
                                              const LinkTimes& times);

// "0.94 Gb/s out, 0.94 Gb/s in, 105 us one way; measured in 0.14 s", with
// ", the cache had 0.47 Gb/s out, 0.47 Gb/s in", or "...; from the cache".
std::string Describe(const LinkCalibration& link);

}  // namespace telegrad
