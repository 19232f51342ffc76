#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/clock.h"
#include "kvstore/kvstore.h"
#include "kvstore/tuning/calibration_cache.h"
#include "topology/calibration.h"

// What a store's work costs on this machine, for the planner.
namespace telegrad {

// Elements of the float32 arrays on which speeds are measured, for steps that
// exchange `num_elems`: a power of two, so that such steps share figures, and
// no more than it takes for no cache of this machine to hold a gradient.
size_t CalibrationElems(size_t num_elems = SIZE_MAX);

struct CalibrationOptions {
  size_t num_elems = CalibrationElems();
  // At most so many at once, as in a store: what is added to a chunk is still
  // in the cache when its sum is encoded.
  size_t chunk_elems = size_t{512} << 10;
  int repeats = 5;
  // Time for the repeats of each codec, and again for those of each other
  // figure.
  Duration budget = std::chrono::milliseconds(100);
  int num_workers = 2;                // workers in a measured reply
  CalibrationCache* cache = nullptr;  // asked first, and told; null: none
};

// Speeds of a codec with its settings ("2bit:auto") on one core, in the reply
// mode that `compression` leads to: of standard normal gradients, others in
// each repeat, with the residual that many steps leave; the median of the
// repeats that fit the budget (of more than three at least three), in which all
// that the codec does takes turns, so that a busy moment falls on none alone.
// Blocks. NotFound and InvalidArgument as ParseCodecSpec.
absl::StatusOr<CodecFigures> MeasureCodec(absl::string_view text,
                                          const CompressionConfig& compression,
                                          const CalibrationOptions& options);

using MeasureCodecFn = decltype(MeasureCodec);

// A calibration's `reduce` (float additions/s of an array into another),
// `check` and `copy` (bytes/s) of one core, and its `handover_s` of a
// ThreadPool; kept together.
Calibration MeasureCores(const CalibrationOptions& options);

}  // namespace telegrad
