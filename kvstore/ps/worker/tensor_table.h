#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"
#include "kvstore/ps/worker/worker_tensor.h"

namespace telegrad {

// A worker's tensors by key. One thread adds at a time, any may read what was
// added; nothing moves.
class TensorTable {
 public:
  static constexpr size_t kMaxTensors = size_t{1} << 20;

  size_t size() const { return size_.load(std::memory_order_acquire); }
  WorkerTensor& operator[](size_t key) const {
    return *(*blocks_[key / kBlock])[key % kBlock];
  }
  // At most kMaxTensors.
  void Add(std::unique_ptr<WorkerTensor> tensor) {
    const size_t key = size_.load(std::memory_order_relaxed);
    TELEGRAD_CHECK(key < kMaxTensors, "callers count");
    if (key % kBlock == 0) blocks_[key / kBlock] = std::make_unique<Block>();
    (*blocks_[key / kBlock])[key % kBlock] = std::move(tensor);
    size_.store(key + 1, std::memory_order_release);
  }
  // FailedPrecondition: `what` within a round of one of them.
  absl::Status CheckIdle(absl::string_view what) const {
    absl::Status status;
    for (size_t key = 0; key < size() && status.ok(); ++key) {
      status = (*this)[key].turns.CheckIdle(what, (*this)[key].spec());
    }
    return status;
  }
  // TensorCodec::Place for the tensors from `first` on.
  absl::Status Place(size_t first) const {
    std::vector<TensorCodec*> tensors;
    for (size_t key = first; key < size(); ++key) {
      tensors.push_back((*this)[key].codec.get());
    }
    return TensorCodec::Place(tensors);
  }

 private:
  static constexpr size_t kBlock = 1024;
  using Block = std::array<std::unique_ptr<WorkerTensor>, kBlock>;
  std::array<std::unique_ptr<Block>, kMaxTensors / kBlock> blocks_;
  std::atomic<size_t> size_{0};
};

}  // namespace telegrad
