#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kvstore/kvstore.h"
#include "trainer/networks/loss_scale.h"
#include "trainer/networks/network.h"
#include "trainer/report/results.h"

namespace telegrad {

// Where a run stands between two steps, besides its tensors. Order of samples,
// what drops out and the learning rate are functions of this and of the flags.
struct Cursor {
  int64_t step = 0;
  int epoch = 0;
  int64_t batch = 0;        // the next one of the epoch
  int64_t num_batches = 0;  // batches of an epoch; not kept
  double seconds = 0;
  double comm_wait_s = 0;   // this worker's part of `seconds`
  StoreStats traffic = {};  // this worker's, so far
  bool has_traffic = true;  // false: of a version that did not keep these two
  int64_t num_skipped = 0;
  LossScale loss_scale = {};     // its value and count
  std::string auto_choice = {};  // RunPlan::SaveChoice
  BatchResult since_point = {};
  std::vector<MetricPoint> points = {};  // without what is told of tensors
};

// The field `cursor` of a part. DataLoss for what is none.
std::string CursorText(const Cursor& cursor);
absl::StatusOr<Cursor> ParseCursor(const std::string& text);

// `sum` with the bytes and elements of `part`, so many `times`.
StoreStats Plus(StoreStats sum, const StoreStats& part, double times = 1);

}  // namespace telegrad
