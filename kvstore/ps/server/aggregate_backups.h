#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "kvstore/ps/server/aggregate_one_by_one.h"

namespace telegrad {

// Steps the weights once per round, with the first pushes of it: all but K
// workers' (backup workers, arXiv 1604.00981). A push that comes when its round
// is over is kept for the round that is open, whatever that one's scales and
// modes are, so that each counts once; its worker has the newest weights at
// once. A round for which a push takes_all waits for all.
//
// A worker's slot is empty, or taken (Admit) until it is answered (Complete).
// Slots are the server's thread's, but for what Apply needs of a taken one.
class BackupAggregator : public OneByOneAggregator {
 public:
  // `config`, with the optimizer on servers, outlives it. `num_dropped` is at
  // least 1 and less than its contributors.
  BackupAggregator(ChunkSum sum, const EngineConfig& config, int num_dropped);

  absl::StatusOr<Admission> Admit(int worker, const PushHeader& push) override;
  absl::StatusOr<bool> OnPushed(int worker, bool needs_checksum) override;
  size_t Complete(AnswerSink& sink) override;
  absl::Status OnPull(int worker, const PullHeader& pull,
                      AnswerSink& sink) override;
  absl::Status OnPropose(int worker, const PushHeader& propose,
                         AnswerSink& sink) override;
  void OnLeft(int worker, AnswerSink& sink) override;
  std::string WaitsFor(int worker) const override;
  ChunkWeights& weights() override { return sum_.weights(); }
  ChunkSum* sum() override { return &sum_; }
  const Chunk& chunk() const override { return sum_.chunk(); }
  uint64_t num_rounds() const override { return num_rounds_; }

 private:
  struct Slot {
    bool is_taken = false;
    bool has_left = false;
    bool is_late = false;  // Apply's, until Complete
    uint64_t next = 0;     // the first step that it may push
    PushHeader push = {};
    std::shared_ptr<Buffer> frame = nullptr;
  };
  // What answers carry.
  struct Current {
    RoundResult weights = {};
    PayloadFormat format = {};
    ReplyRecord record = {};  // the last round's
    uint64_t num_rounds = 0;
  };

  // A state may have come since; between rounds.
  void Follow();
  Slot& At(int worker) { return slots_[static_cast<size_t>(worker)]; }
  absl::StatusOr<bool> Apply(int change, bool needs_checksum) override;
  absl::Status Sum(bool needs_checksum);
  Current current();
  auto SendTo(AnswerSink& sink) {
    return [this, &sink](const Answer& answer) {
      sink.Send(chunk(), current().format, answer);
    };
  }

  const EngineConfig& config_;
  const size_t num_dropped_;
  ChunkSum sum_;
  std::vector<Slot> slots_;  // by worker
  bool is_agreed_ = false;   // there is a first scale
  std::atomic<uint64_t> num_rounds_{0};
  std::atomic<bool> takes_all_{false};  // the open round

  // Whoever applies changes has these.
  std::vector<int> fresh_;            // workers whose push the open round has
  std::vector<ConstBytes> payloads_;  // what Sum adds

  Mutex mutex_;
  Current current_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace telegrad
