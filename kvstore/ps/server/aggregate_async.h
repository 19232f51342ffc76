#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "kvstore/ps/server/aggregate_one_by_one.h"

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
class AsyncAggregator : public OneByOneAggregator {
 public:
  // `config`, of one contributor, outlives it. `kept`, if it has a value,
  // stands in place of the first that is broadcast.
  static absl::StatusOr<std::unique_ptr<AsyncAggregator>> Make(
      const TensorLayout& layout, const Chunk& chunk,
      const EngineConfig& config, int num_workers, int64_t max_staleness,
      ChunkWeights kept = {});

  absl::StatusOr<Admission> Admit(int worker, const PushHeader& push) override;
  absl::StatusOr<bool> OnPushed(int worker, bool needs_checksum) override;
  size_t Complete(AnswerSink& sink) override;
  absl::Status OnPull(int worker, const PullHeader& pull,
                      AnswerSink& sink) override;
  absl::Status OnPropose(int worker, const PushHeader& propose,
                         AnswerSink& sink) override;
  void OnLeft(int worker, AnswerSink& sink) override;
  ChunkWeights& weights() override { return slots_[0].sum.weights(); }
  const Chunk& chunk() const override { return slots_[0].sum.chunk(); }
  // Rounds of the slowest worker that is there.
  uint64_t num_rounds() const override;

 private:
  enum class Phase : uint8_t { kEmpty, kTaken, kApplied };
  struct Slot {
    ChunkSum sum;
    Phase phase = Phase::kEmpty;
    bool has_left = false;
    PushHeader push = {};
    std::shared_ptr<Buffer> frame = nullptr;
    ReplyRecord record = {};  // answers the push, once it is applied
  };

  AsyncAggregator(std::vector<Slot> slots, const EngineConfig& config,
                  int64_t max_staleness, ChunkWeights kept);
  absl::StatusOr<bool> Apply(int change, bool needs_checksum) override;
  void AnswerPushes(AnswerSink& sink);
  auto SendTo(AnswerSink& sink) {
    return [this, &sink](const Answer& answer) {
      const Slot& slot = slots_[static_cast<size_t>(answer.worker)];
      sink.Send(chunk(), slot.sum.format(), answer);
    };
  }
  RoundResult current();

  const EngineConfig& config_;
  const int64_t max_staleness_;
  std::vector<Slot> slots_;  // by worker
  bool has_kept_;            // weights that count, until the first value

  Mutex mutex_;
  RoundResult current_ ABSL_GUARDED_BY(mutex_);  // the weights
};

}  // namespace telegrad
