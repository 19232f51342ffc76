#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvstore/engine/shard_plan.h"
#include "kvstore/ps/wire.h"

namespace telegrad {

// Rows of one chunk that workers push and pull (engine/rows.h). One thread, but
// for Spread.
class ServedRows {
 public:
  // Without rows if `row_elems` is 0: whatever comes is refused.
  ServedRows(const Chunk& chunk, size_t row_elems, int num_workers);

  // InvalidArgument unless a frame may have so many bytes.
  absl::Status CheckFrame(const FrameHeader& header, bool has_values) const;
  // A push into the chunk's dense elements. InvalidArgument: no such rows.
  absl::Status Spread(ConstBytes payload, Bytes dense) const;

  // Where a worker's wish for rows goes, and that it is there: one at a time.
  absl::StatusOr<Bytes> BeginPull(int worker, const FrameHeader& header);
  absl::Status EndPull(int worker, ConstBytes payload);
  // The answer, of the chunk's elements; null: the worker wants all.
  std::shared_ptr<Buffer> Collect(int worker, ConstBytes dense);

 private:
  struct Pull {
    Buffer arriving = {};
    std::optional<std::vector<uint64_t>> rows = {};
  };

  const Chunk chunk_;
  const size_t row_elems_;
  std::vector<Pull> pulls_;  // by worker, if there are rows
};

}  // namespace telegrad
