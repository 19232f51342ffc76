#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kvstore/engine/codec/shard_plan.h"
#include "kvstore/ps/wire/wire.h"

namespace telegrad {

// Rows of one chunk that workers push and pull (engine/rows.h). One thread, but
// for Spread.
class ServedRows {
 public:
  // Without rows if `row_elems` is 0: whatever comes is refused. `codec`: of
  // the values that are pushed; none: floats.
  static absl::StatusOr<ServedRows> Make(
      const Chunk& chunk, size_t row_elems,
      const std::optional<CodecSetting>& codec, int num_workers);

  // A push of rows becomes one of the chunk's dense elements, as which it is
  // summed. InvalidArgument unless it may have this size and codec.
  absl::Status Admit(const FrameHeader& header, PushHeader& push) const;
  // Its payload into these elements. InvalidArgument: no such rows.
  absl::Status Spread(ConstBytes payload, Bytes dense) const;

  // Where a worker's wish for rows goes, and that it is there: one at a time.
  absl::StatusOr<Bytes> BeginPull(int worker, const FrameHeader& header);
  absl::Status EndPull(int worker, ConstBytes payload);
  // The answer, of the chunk's elements; null: the worker wants all.
  std::shared_ptr<Buffer> Collect(int worker, ConstBytes dense);

 private:
  ServedRows() = default;
  absl::Status CheckFrame(const FrameHeader& header, size_t most) const;

  struct Pull {
    Buffer arriving = {};
    std::optional<std::vector<uint64_t>> rows = {};
  };

  Chunk chunk_;
  size_t row_elems_ = 0;
  std::optional<CodecSetting> codec_;
  size_t most_pushed_ = 0;   // bytes
  std::vector<Pull> pulls_;  // by worker, if there are rows
};

}  // namespace telegrad
