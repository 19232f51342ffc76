#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kvstore/kvstore.h"
#include "perf/network/replay.h"

namespace telegrad::perf {

// A job as its store sees it, and which of its tensors are looked at.
struct PushPullJob {
  std::vector<TensorSpec> tensors = {};  // by key
  CompressionConfig compression = {};    // with the packing that was decided
  size_t chunk_elems = 0;
  int num_gradients = 0;          // gradients of all devices of all workers
  std::vector<int> pushers = {};  // who pushes each; empty: each for itself
  int num_servers = 0;
  Key first = 0;  // the keys that are looked at
  size_t count = 0;
};

// Checks that workers get what push-pull of FillGradient's values must give.
// Sums of codecs that send them as they are (none, fp16, bf16) are added here,
// those of others replayed, with what a Replay shares with the store and so
// cannot find wrong: the same bits either way.
class PushPullCheck {
 public:
  // Before the first round of these keys.
  static absl::StatusOr<PushPullCheck> Make(const PushPullJob& job);

  // Checks each round in turn: `sums` are what `worker` got for these keys, one
  // behind the other. DataLoss names the worker, the key, the first wrong
  // element, its value and the right one.
  absl::Status Verify(int worker, const float* sums);

 private:
  struct Tensor {
    Key key = 0;
    size_t num_elems = 0;
    std::vector<std::unique_ptr<Replay>> replay =
        {};  // one, or none: sums are exact
  };

  absl::Status VerifyTensor(int worker, size_t first, Tensor& tensor,
                            const float* sums) const;

  std::vector<Tensor> tensors_;
  std::vector<size_t> place_of_;  // among those that push, by worker
  size_t num_pushers_ = 0;
  int64_t step_ = 0;
};

// WorkerGroup::Gather.
using GatherTexts = std::function<absl::StatusOr<std::vector<std::string>>(
    const std::string& name, absl::string_view payload)>;

// Tells all workers what round `step` of this one's gave, and waits for all:
// no worker's next round runs beside another's check, and where one is wrong
// all end with its DataLoss.
absl::Status VerdictOfAll(const absl::Status& mine, int64_t step,
                          const GatherTexts& gather);

}  // namespace telegrad::perf
