#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvstore/engine/device/buffer_pool.h"
#include "kvstore/ps/server/aggregator.h"

namespace telegrad {

// The values of one chunk that workers give to all. Keeps each until all have
// it; whoever has it may give the next one meanwhile, which waits. In order:
// Begin, End, next, Install. One thread.
class GivenValues {
 public:
  using SendAnswer = absl::FunctionRef<void(const Answer&)>;

  // Answers are of so many `contributors`. `buffers` outlives it.
  GivenValues(size_t num_workers, int contributors, BufferPool* buffers)
      : contributors_(static_cast<uint16_t>(contributors)),
        buffers_(*buffers),
        workers_(num_workers) {}

  // Where value `index` goes, and that it is there. InvalidArgument if it is
  // not the next one, or of a worker that lacks the last.
  absl::StatusOr<Bytes> Begin(const Chunk& chunk, uint64_t index,
                              size_t num_bytes);
  absl::Status End(const Chunk& chunk, int worker, int32_t priority);
  // The one that waits, if all have the last; until Install.
  std::shared_ptr<Buffer> next() const;
  // It is the chunk's now, and the last: tells who gave it, and answers.
  void Install(SendAnswer send);
  // A worker asks for the value `pull.step`, now or when there is one.
  // InvalidArgument if it has it, or asks already.
  absl::Status OnPull(const Chunk& chunk, int worker, const PullHeader& pull,
                      SendAnswer send);
  // A value, or a worker's wish for one, waits for this worker.
  bool WaitFor(int worker) const;
  // It does not want the last one.
  void Pass(int worker) { At(worker).num_had = num_given_; }

 private:
  struct Worker {
    uint64_t num_had = 0;  // values that it gave or was sent
    std::optional<PullHeader> pull = std::nullopt;
  };
  struct Value {
    std::shared_ptr<Buffer> buffer;
    int worker = 0;  // who gave it
    int32_t priority = 0;
  };
  Worker& At(int worker) { return workers_[static_cast<size_t>(worker)]; }
  bool HaveAllTheLast() const;
  void AnswerPulls(SendAnswer send);

  const uint16_t contributors_;
  BufferPool& buffers_;
  std::vector<Worker> workers_;
  std::shared_ptr<Buffer> arriving_;
  std::optional<Value> next_;
  RoundResult last_;  // until all have it
  uint64_t num_given_ = 0;
};

}  // namespace telegrad
