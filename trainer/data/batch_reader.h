#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "trainer/data/dataset.h"

namespace telegrad {

struct Batch {
  std::vector<float> values;
  std::vector<int64_t> labels;
};

// Reads batches ahead on a thread of its own: while one is trained, the next
// kAhead are made. Holds 1 + kAhead of them, four bytes per value and eight per
// label. Use: Start for an epoch, then Next for each of its batches. One
// thread.
class BatchReader {
 public:
  static constexpr size_t kAhead = 2;

  BatchReader(const Dataset& dataset, const Augmentation& augmentation,
              size_t largest_batch);
  ~BatchReader();

  // The samples of each batch, at most `largest_batch`. Lets go what is not
  // taken.
  void Start(int epoch, std::vector<std::vector<uint32_t>> batches);
  // Valid until the next call. The error of a sample that cannot be read ends
  // the epoch.
  absl::StatusOr<const Batch*> Next();
  // Leaves out so many; waits for one that is being read.
  void Skip(size_t count);

 private:
  struct Slot {
    Batch batch;
    absl::Status status;
  };
  void Run();

  const Dataset& dataset_;
  std::vector<Slot> slots_;
  Mutex mutex_;
  CondVar changed_;
  Augmentation augmentation_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::vector<uint32_t>> batches_ ABSL_GUARDED_BY(mutex_);
  size_t num_read_ ABSL_GUARDED_BY(mutex_) = 0;   // batches
  size_t num_taken_ ABSL_GUARDED_BY(mutex_) = 0;  // the last one is in use
  bool is_reading_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace telegrad
