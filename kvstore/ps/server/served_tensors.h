#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kvstore/ps/server/aggregator.h"
#include "kvstore/ps/server/served_rows.h"
#include "kvstore/ps/wire/job_config.h"

namespace telegrad {

struct ServedChunk;

// A push whose bytes are here, for the pool: each worker's of a chunk has its
// place, so that none is made while the job runs.
struct ArrivedPush {
  ServedChunk* chunk = nullptr;
  int worker = 0;
  FrameHeaderBytes header = {};
  ConstBytes payload = {};
  uint64_t round = 0;
  TimePoint began = {};  // to arrive, where it is noted
  Bytes dense = {};      // where rows go; empty: it is no push of rows
  Buffer arriving = {};  // memory for a push of rows
};

// A chunk that this server sums, and what is under way of it.
struct ServedChunk {
  std::unique_ptr<Aggregator> aggregator;
  ServedRows rows;
  std::vector<ArrivedPush> pushes;  // by worker
  int num_arrived = 0;              // pushes that are not completed
  TimePoint first_at = {};          // when the first of them was there
  TimePoint last_at = {};
};

// Weights and optimizers' states that an asynchronous server has when its epoch
// ends, by tensor and first element: the next one goes on with these, and not
// with what a worker had pulled before.
struct KeptWeights {
  OptimizerKind kind = OptimizerKind::kSgd;
  std::map<std::pair<std::string, size_t>, ChunkWeights> chunks = {};
};

// A job's tensors on one of its servers: grows by what worker 0 declares, and
// keeps the settings of all. Chunks stay where they are. The server's thread.
class ServedTensors {
 public:
  // `num_workers` push; behind them come `num_readers`, which only read. Takes
  // `max_bytes` of tensors, as float32.
  // Asynchronous ones go on with `kept`.
  ServedTensors(int server, int num_servers, int num_workers, int64_t max_bytes,
                int num_readers = 0, KeptWeights kept = {});

  // DECLARE, RATES or SET_STATE: new tensors, or what changes between rounds.
  // InvalidArgument: not now, or not so; ResourceExhausted: too many bytes.
  absl::Status Apply(const FrameHeader& header, ConstBytes payload);
  // Part `header.step` of a chunk's state, between rounds.
  absl::StatusOr<std::string> DescribeState(const FrameHeader& header);

  // InvalidArgument: it is not served here.
  absl::StatusOr<ServedChunk*> Find(const FrameHeader& header);
  ServedChunk& At(const Chunk& chunk) {
    return *chunks_[chunk.key][chunk.index];
  }
  // A worker does nothing any more.
  void OnLeft(int worker, AnswerSink& sink);
  // "after step 3; tensor w, step 4": when this worker has left, and what now
  // waits for it; empty: nothing does.
  std::string WaitsFor(int worker) const;
  const std::vector<std::string>& names() const { return names_; }  // by key
  // What the next epoch goes on with; nothing is under way any more.
  KeptWeights TakeWeights();
  // Whether the last push of a chunk that is under way may be summed.
  bool MaySum(const ServedChunk& chunk) const {
    return config_.drop_slowest > 0 ||
           chunk.num_arrived >= engine_.num_contributors;
  }
  // Whether what arrived last was what the others had waited for.
  bool IsLast(const ServedChunk& chunk) const {
    return chunk.num_arrived > 1 &&
           chunk.num_arrived == engine_.num_contributors;
  }

 private:
  absl::Status Add(absl::string_view text);
  absl::Status AddTensor(const TensorSpec& tensor);
  absl::Status ChangeRates(absl::string_view text);
  // One on which nobody on the pool works.
  absl::StatusOr<ServedChunk*> FindIdle(const FrameHeader& header);

  const int server_;
  const int num_servers_;
  const int num_workers_;
  const int num_readers_;
  int64_t bytes_left_;
  KeptWeights kept_;                     // until its chunks are there
  JobConfig config_;                     // its tensors are the last ones
  std::optional<ShardPlanner> planner_;  // once there are any
  BufferPool buffers_;
  EngineConfig engine_;  // once there are tensors
  std::vector<std::string> names_;
  // By key and index; null where another server has it.
  std::vector<std::vector<std::unique_ptr<ServedChunk>>> chunks_;
};

}  // namespace telegrad
