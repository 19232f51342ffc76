#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "kvstore/kvstore.h"
#include "kvstore/tuning/calibrate.h"
#include "kvstore/tuning/calibration_cache.h"
#include "topology/calibration.h"
#include "topology/cost_model.h"

// `--gc-packing auto`: tighter codes where the wire is the limit, not the core.
namespace telegrad {

struct PackingDecision {
  PackingMode mode = PackingMode::kPlain;
  std::string reason = {};  // "exchange of 81 ms predicted, 98 ms with ..."
};

// Predicts an exchange of these tensors with either packing of a codec, on
// cores and links of this speed; chooses radix where that saves at least a
// twentieth of the time. FailedPrecondition where a speed is missing (CostOf).
absl::StatusOr<PackingDecision> DecidePacking(
    std::span<const int64_t> tensor_elems, const ClusterCost& cluster,
    size_t chunk_elems, const CodecFigures& plain, const CodecFigures& radix);

struct PackingOptions {
  CompressionConfig compression = {};  // the store's
  LinkFigures link = {};               // MeasureLink's
  int cores = 1;                       // a worker's cores for codecs
  size_t chunk_elems = size_t{512} * 1024;
  CalibrationCache* cache = nullptr;  // has codecs' speeds; null: no cache
  MeasureCodecFn* measure_codec = MeasureCodec;
};

// Settles what CodecControl::packing leaves open, and says how; nothing where
// nothing is open. All workers call it at the same time, after Init, before the
// first push; each measures both packings (a fraction of a second each, unless
// the cache has them), the slowest one's speeds count, and all get the same.
// Errors are the store's.
absl::StatusOr<std::optional<PackingDecision>> SettlePacking(
    KVStore& store, const PackingOptions& options);

}  // namespace telegrad
