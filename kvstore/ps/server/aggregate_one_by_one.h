#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "kvstore/ps/server/aggregator.h"
#include "kvstore/ps/server/given_values.h"
#include "kvstore/ps/server/one_by_one.h"

namespace telegrad {

// What those have in common whose weights change with single pushes and
// broadcast values, in the order in which these come.
class OneByOneAggregator : public Aggregator {
 public:
  absl::StatusOr<Bytes> BeginValue(uint64_t index, size_t num_bytes) override;
  absl::Status OnValue(int worker, int32_t priority, AnswerSink& sink) override;

 protected:
  // A change is a worker's push, or a broadcast value.
  static constexpr int kValue = -1;

  // As of GivenValues.
  OneByOneAggregator(size_t num_workers, int contributors, BufferPool* buffers)
      : values_(num_workers, contributors, buffers) {}

  // Makes the change, and those that come meanwhile, unless another thread
  // does. Whether answers are due.
  absl::StatusOr<bool> Run(int change, bool needs_checksum);
  // One at a time, on any thread. What is to be answered is in NoteApplied.
  virtual absl::StatusOr<bool> Apply(int change, bool needs_checksum) = 0;
  void NoteApplied(int change);

  // The server's thread has these. Applies a value, if there is one that all
  // wait for; TakeApplied installs it.
  absl::Status ApplyValue(AnswerSink& sink);
  // Workers whose pushes are applied and not answered.
  std::vector<int> TakeApplied(GivenValues::SendAnswer send);
  // Pushes that a value has completed since it was asked last.
  size_t TakeNumBetween() { return std::exchange(num_between_, 0); }
  GivenValues& values() { return values_; }
  const GivenValues& values() const { return values_; }
  // The broadcast one that Apply takes.
  const std::shared_ptr<Buffer>& value() const { return value_; }

 private:
  GivenValues values_;
  std::shared_ptr<Buffer> value_;
  size_t num_between_ = 0;
  OneByOne changes_;
  Mutex mutex_;
  std::vector<int> applied_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace telegrad
