#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kvstore/ps/server/aggregator.h"
#include "kvstore/ps/server/given_values.h"

namespace telegrad {

// Sums a round when all workers' pushes are there, on the thread that has
// checked the last one, and answers all.
//
// A worker's slot is empty, or taken (Admit) until the round ends (Complete).
class SyncAggregator : public Aggregator {
 public:
  // `config` outlives it.
  SyncAggregator(ChunkSum sum, const EngineConfig& config);

  absl::StatusOr<Admission> Admit(int worker, const PushHeader& push) override;
  absl::StatusOr<bool> OnPushed(int worker, bool needs_checksum) override;
  size_t Complete(AnswerSink& sink) override;
  absl::Status OnPull(int worker, const PullHeader& pull,
                      AnswerSink& sink) override;
  absl::Status OnPropose(int worker, const PushHeader& propose,
                         AnswerSink& sink) override;
  absl::StatusOr<Bytes> BeginValue(uint64_t index, size_t num_bytes) override;
  absl::Status OnValue(int worker, int32_t priority, AnswerSink& sink) override;
  std::string WaitsFor(int worker) const override;
  ChunkWeights& weights() override { return sum_.weights(); }
  ChunkSum* sum() override { return &sum_; }
  const Chunk& chunk() const override { return sum_.chunk(); }
  uint64_t num_rounds() const override { return sum_.step(); }

 private:
  struct Slot {
    bool is_taken = false;
    PushHeader push;
    std::shared_ptr<Buffer> frame;
  };
  PayloadFormat format() const { return sum_.format(); }
  absl::Status Sum(bool needs_checksum);
  void InstallValue(AnswerSink& sink);
  auto SendTo(AnswerSink& sink) {
    return [this, &sink](const Answer& answer) {
      sink.Send(chunk(), format(), answer);
    };
  }

  const EngineConfig& config_;
  ChunkSum sum_;
  std::vector<Slot> slots_;           // by worker
  std::vector<ConstBytes> payloads_;  // what Sum adds
  std::atomic<size_t> num_missing_;   // payloads of the round
  GivenValues values_;
  // The last result or broadcast; of the round that is being summed from
  // OnPushed to Complete.
  RoundResult current_;
  RoundResult summed_;
  bool has_current_ = false;
};

}  // namespace telegrad
