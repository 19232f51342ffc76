#include "trainer/data/batch_reader.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/start_thread.h"

namespace telegrad {
namespace {

// What is waited for comes; this long until it is looked for again.
constexpr Duration kLook = std::chrono::seconds(1);
// A disk that takes longer for a batch counts as gone.
constexpr Duration kMostWait = std::chrono::seconds(300);

}  // namespace

BatchReader::BatchReader(const Dataset& dataset,
                         const Augmentation& augmentation, size_t largest_batch)
    : dataset_(dataset), slots_(1 + kAhead), augmentation_(augmentation) {
  for (Slot& slot : slots_) {
    slot.batch.values.resize(largest_batch * dataset.values_per_sample());
    slot.batch.labels.resize(largest_batch * dataset.labels_per_sample());
  }
  thread_ = StartThread([this] { Run(); });
}

BatchReader::~BatchReader() {
  {
    MutexLock lock(&mutex_);
    is_ending_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

void BatchReader::Start(int epoch, std::vector<std::vector<uint32_t>> batches) {
  MutexLock lock(&mutex_);
  batches_.clear();  // nothing more of the last epoch
  while (is_reading_) changed_.WaitUntil(&mutex_, Clock::now() + kLook);
  augmentation_.epoch = epoch;
  batches_ = std::move(batches);
  num_read_ = num_taken_ = 0;
  changed_.NotifyAll();
}

absl::StatusOr<const Batch*> BatchReader::Next() {
  MutexLock lock(&mutex_);
  if (num_taken_ == batches_.size()) {
    return absl::OutOfRangeError("the epoch has no further batch");
  }
  ++num_taken_;
  changed_.NotifyAll();  // the one before is free
  const TimePoint deadline = Clock::now() + kMostWait;
  while (num_read_ < num_taken_) {
    if (!changed_.WaitUntil(&mutex_, deadline) && Clock::now() >= deadline) {
      return absl::DeadlineExceededError("data: no batch in 300 s");
    }
  }
  const Slot& slot = slots_[(num_taken_ - 1) % slots_.size()];
  if (!slot.status.ok()) return slot.status;
  return &slot.batch;
}

void BatchReader::Skip(size_t count) {
  if (count == 0) return;
  MutexLock lock(&mutex_);
  while (is_reading_) changed_.WaitUntil(&mutex_, Clock::now() + kLook);
  num_taken_ += std::min(count, batches_.size() - num_taken_);
  num_read_ = std::max(num_read_, num_taken_);
  changed_.NotifyAll();
}

void BatchReader::Run() {
  MutexLock lock(&mutex_);
  while (!is_ending_) {
    // The slot of the batch in use, if any, is not written.
    const bool is_due =
        num_read_ < batches_.size() && num_read_ + 1 <= num_taken_ + kAhead;
    if (!is_due) {
      changed_.WaitUntil(&mutex_, Clock::now() + kLook);
      continue;
    }
    const std::vector<uint32_t> indices = batches_[num_read_];
    Slot& slot = slots_[num_read_ % slots_.size()];
    const Augmentation augmentation = augmentation_;
    is_reading_ = true;
    mutex_.Unlock();
    slot.status =
        GatherBatch(dataset_, augmentation, indices, slot.batch.values.data(),
                    slot.batch.labels.data());
    mutex_.Lock();
    is_reading_ = false;
    ++num_read_;
    changed_.NotifyAll();
  }
}

}  // namespace telegrad
