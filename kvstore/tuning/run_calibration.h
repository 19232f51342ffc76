#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/device.h"
#include "kvstore/kvstore.h"
#include "kvstore/tuning/calibrate.h"
#include "kvstore/tuning/calibration_cache.h"
#include "topology/calibration.h"
#include "topology/plan.h"

// What a run's plan is made with: figures of this run, the same on all workers.
namespace telegrad {

struct RunCalibrationOptions {
  // Its reply mode counts; reply dense where servers run the optimizer.
  CompressionConfig compression = {};
  std::vector<std::string> codecs = {};  // with their settings, none left out
  size_t num_elems = 0;                  // elements that a step exchanges
  Device device = {};                    // where this worker's gradients lie
  int cpus = 1;                          // processors of this worker's machine
  CalibrationCache* cache = nullptr;     // null: measured, and not kept
  Duration budget = std::chrono::milliseconds(100);  // CalibrationOptions'
  MeasureCodecFn* measure_codec = MeasureCodec;
};

struct RunCalibration {
  Calibration mine = {};  // cores', codecs' and bus' figures of this worker
  // The slowest of all workers': speeds the least, times the most. `cores` is
  // the least number of a machine's. Of links the bus, where all have one.
  Calibration agreed = {};
  // What a codec lacks that the agreed ones do not hold.
  std::vector<std::string> notes = {};
};

// Measures this worker's cores and codecs (a tenth of a second or two each) or
// finds them in the cache, then its device's, and takes the slowest worker's.
// All workers call it at the same time, after Init, with the same codecs. A
// codec that cannot be measured, or not be predicted for so many workers,
// is a note; so are all where what worker 0 knows of them cannot be sent or
// read. Errors are the store's, and InvalidArgument for numbers that a worker
// sent.
absl::StatusOr<RunCalibration> CalibrateRun(
    KVStore& store, const RunCalibrationOptions& options);

// The codec of each tensor with its settings, "topk:0.01", or "none", as in
// PlanRequest::tensor_codecs. `is_choice`: "" for those that have the
// configuration's type, which may get another instead. Those that `known` lacks
// are "none"; null: it has all.
std::vector<std::string> CodecsOf(std::span<const TensorReport> reports,
                                  bool is_choice,
                                  const Calibration* known = nullptr);
// The codecs of tensors that no store has yet. Errors as MakeKVStore's Init.
absl::StatusOr<std::vector<std::string>> CodecsOf(
    std::span<const TensorSpec> tensors, const CompressionConfig& compression,
    bool is_choice);

}  // namespace telegrad
