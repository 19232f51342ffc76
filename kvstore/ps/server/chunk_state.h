#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/bytes.h"
#include "kvstore/ps/server/aggregator.h"
#include "kvstore/states.h"

// What travels of a chunk's optimizer: one of its arrays, beside how often it
// has stepped and how many arrays there are.
//   payload = steps:u64 arrays:u64 { elems floats }     without arrays no
//   floats
namespace telegrad {

struct ChunkState {
  uint64_t num_steps = 0;
  size_t num_arrays = 0;
  ConstBytes values;  // where they are in the payload; empty without arrays
};

std::string ChunkStateText(uint64_t num_steps, size_t num_arrays,
                           ConstBytes values);
// InvalidArgument unless it is whole and of `num_elems` elements.
absl::StatusOr<ChunkState> ReadChunkState(ConstBytes payload, size_t num_elems);

// In place of an array's number: what the sum keeps of its codec.
constexpr uint64_t kCodecState = kMaxStateArrays;

// Array `index` of a chunk's; InvalidArgument if there is none.
absl::StatusOr<std::string> DescribeState(Aggregator& aggregator,
                                          uint64_t index);
// Makes array `index` of a chunk that of the payload, and the steps the
// payload's.
absl::Status SetState(Aggregator& aggregator, OptimizerKind kind,
                      uint64_t index, ConstBytes payload);

}  // namespace telegrad
