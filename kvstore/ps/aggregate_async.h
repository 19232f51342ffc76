#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "base/mutex.h"
#include "kvstore/ps/aggregator.h"

namespace telegrad {

// Steps the weights with each push as it comes, one push after the other, on
// the threads that have checked them. What is agreed about codecs is agreed
// with each worker alone: each has a ChunkSum of its own, and all step the same
// weights. With a bound a worker that would get too far ahead of the slowest
// has its answer later, and then the weights of that time.
//
// A worker's slot is empty, then taken (Admit), applied (Complete), and empty
// again when it is answered. Slots are the server's thread's, but for what
// Apply needs of a taken one.
class AsyncAggregator : public Aggregator {
 public:
  // `config`, of one contributor, outlives it.
  static absl::StatusOr<std::unique_ptr<AsyncAggregator>> Make(
      const TensorLayout& layout, const Chunk& chunk,
      const EngineConfig& config, int num_workers, int64_t max_staleness);

  absl::StatusOr<Admission> Admit(int worker, const PushHeader& push) override;
  absl::StatusOr<bool> OnPushed(int worker, bool needs_checksum) override;
  size_t Complete(AnswerSink& sink) override;
  absl::Status OnPull(int worker, const PullHeader& pull,
                      AnswerSink& sink) override;
  absl::Status OnPropose(int worker, const PushHeader& propose,
                         AnswerSink& sink) override;
  // Counts when it has come; acknowledged when all others have it.
  absl::StatusOr<Bytes> BeginValue(uint64_t index, size_t num_bytes) override;
  absl::Status OnValue(int worker, int32_t priority, AnswerSink& sink) override;
  ChunkWeights& weights() override { return slots_[0].sum.weights(); }
  const Chunk& chunk() const override { return slots_[0].sum.chunk(); }
  uint64_t num_rounds() const override;  // of the slowest

 private:
  enum class Phase : uint8_t { kEmpty, kTaken, kApplied };
  struct Slot {
    ChunkSum sum;
    Phase phase = Phase::kEmpty;
    PushHeader push = {};
    std::shared_ptr<Buffer> frame = nullptr;
    ReplyRecord record = {};                        // of the push, once applied
    std::optional<PullHeader> pull = std::nullopt;  // that waits for a value
    uint64_t num_values = 0;  // broadcasts that it gave or was sent
  };
  // What changes the weights: a worker's push, or a broadcast value.
  static constexpr int kValue = -1;
  struct Giver {
    int worker = 0;
    int32_t priority = 0;
    bool is_applied = false;
  };

  AsyncAggregator(std::vector<Slot> slots, const EngineConfig& config,
                  int64_t max_staleness);
  absl::StatusOr<bool> Run(int change, bool needs_checksum);
  absl::StatusOr<RoundResult> Apply(int change, bool needs_checksum);
  void AnswerPushes(AnswerSink& sink);
  void AnswerPulls(AnswerSink& sink);
  RoundResult current();

  const EngineConfig& config_;
  const int64_t max_staleness_;
  std::vector<Slot> slots_;  // by worker

  // The broadcast that is under way: until all but its giver have it.
  std::shared_ptr<Buffer> arriving_value_;
  std::optional<Giver> giver_;
  RoundResult value_;
  size_t num_without_value_ = 0;
  uint64_t num_values_ = 0;  // that have come

  Mutex mutex_;
  std::deque<int> changes_ ABSL_GUARDED_BY(mutex_);  // to be applied
  bool is_running_ ABSL_GUARDED_BY(mutex_) = false;  // somebody applies them
  std::vector<int> applied_ ABSL_GUARDED_BY(mutex_);
  RoundResult current_ ABSL_GUARDED_BY(mutex_);  // the weights
};

}  // namespace telegrad
